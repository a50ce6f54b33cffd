package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Hosts cut or refuse what is above 25,000 tokens, which are about 80,000 bytes of output
// and code. Text and structure of an answer have half of that each; a host shows one or both.
const (
	maxText       = 40_000
	maxStructured = 40_000
)

// Of each stream of output the text has a beginning and an end.
const (
	keptHead = 4_000
	keptTail = 12_000
)

// kept is the beginning and the end of what was printed. The zero value is empty.
type kept struct {
	head, tail []byte
	// total is how much there was, in bytes.
	total int64
}

// write takes a piece, all of which may be too much.
func (k *kept) write(p []byte) {
	k.total += int64(len(p))
	if room := keptHead - len(k.head); room > 0 {
		n := min(room, len(p))
		k.head = append(k.head, p[:n]...)
		p = p[n:]
	}
	k.tail = append(k.tail, p[max(0, len(p)-keptTail):]...)
	if len(k.tail) > 2*keptTail {
		k.tail = append(k.tail[:0], k.tail[len(k.tail)-keptTail:]...)
	}
}

// cut reports whether some of it is not kept.
func (k *kept) cut() bool { return k.total > keptHead+keptTail }

// shown is the text with at most so many bytes of its end, and a line where something is
// missing.
func (k *kept) shown(tail int) string {
	head, end := k.head, k.tail
	tail = min(tail, keptTail)
	if len(end) > tail {
		end = end[len(end)-tail:]
		for len(end) > 0 && !utf8.RuneStart(end[0]) {
			end = end[1:]
		}
	}
	missing := k.total - int64(len(head)) - int64(len(end))
	if missing == 0 {
		return strings.ToValidUTF8(string(head)+string(end), "\uFFFD")
	}
	head = wholeRunes(head)
	return strings.ToValidUTF8(string(head), "\uFFFD") + fmt.Sprintf("\n[... %d bytes are left out here ...]\n", k.total-int64(len(head))-int64(len(end))) +
		strings.ToValidUTF8(string(end), "\uFFFD")
}

// lastLine is the last line that has something in it.
func (k *kept) lastLine() string {
	end := k.tail
	if len(end) < 500 {
		end = append(append([]byte{}, k.head[max(0, len(k.head)-500):]...), end...)
	}
	end = end[max(0, len(end)-500):]
	text := strings.TrimRight(strings.ToValidUTF8(string(end), ""), " \r\n\t")
	return strings.TrimSpace(text[strings.LastIndexAny(text, "\r\n")+1:])
}

// wholeRunes leaves out the beginning of a character at the end.
func wholeRunes(p []byte) []byte {
	for n := 1; n <= utf8.UTFMax && n <= len(p); n++ {
		if b := p[len(p)-n]; utf8.RuneStart(b) {
			if !utf8.FullRune(p[len(p)-n:]) {
				return p[:len(p)-n]
			}
			break
		}
	}
	return p
}

// shortened is a text of at most so many bytes, which says what is missing.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	note := fmt.Sprintf("\n[... %d bytes more are left out]", len(text)-most)
	return strings.ToValidUTF8(text[:max(0, most-len(note))], "") + note
}

// fitting is the structure that build makes of as many elements as there is room for.
func fitting(count int, build func(count int) any) (structured any, shown int) {
	for shown = count; ; shown /= 2 {
		structured = build(shown)
		if encoded, err := json.Marshal(structured); err == nil && len(encoded) <= maxStructured || shown == 0 {
			return structured, shown
		}
	}
}
