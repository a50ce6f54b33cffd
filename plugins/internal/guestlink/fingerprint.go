package guestlink

import "bytes"

// Fingerprint is the public key of a guest as text. It is no secret.
type Fingerprint string

// linePrefix stands before the fingerprint on the line that has it.
const linePrefix = "sandbox-guest listens with the key "

// Line is what a guest prints of its key: the fingerprint on a line by itself.
func (f Fingerprint) Line() string { return linePrefix + string(f) + "\n" }

// ParseFingerprint finds the fingerprint in what a guest has printed, which must be its log
// from the beginning: the guest prints the line before it runs anything, so that the first
// such line is its own. ok is false as long as there is no whole line of the kind.
func ParseFingerprint(log []byte) (f Fingerprint, ok bool) {
	for {
		line, rest, whole := bytes.Cut(log, []byte("\n"))
		if !whole {
			return "", false
		}
		if key, found := bytes.CutPrefix(line, []byte(linePrefix)); found {
			if _, err := ParsePublic(string(key)); err == nil {
				return Fingerprint(key), true
			}
		}
		log = rest
	}
}
