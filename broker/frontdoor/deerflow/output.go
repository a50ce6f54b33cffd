package deerflow

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A mark is what the shell prints before a command and behind it: a NUL, a random nonce, a
// space, and then b, or the exit code, and another NUL.
const (
	nonceBytes = 16
	maxCode    = len("255")
	maxMark    = len("\x00") + 2*nonceBytes + len(" ") + maxCode + len("\x00")
	markBegin  = "b"
)

// codeForm is that of an exit code.
var codeForm = regexp.MustCompile(`^\d{1,3}$`)

// markForm is that of the mark behind a command, if nothing was printed since.
var markForm = regexp.MustCompile(`\x00([0-9a-f]{32}) \d{1,3}\x00$`)

// heard is what a command prints, up to the mark behind it.
type heard struct {
	mark []byte // how the marks begin
	// pending is what may be the beginning of a mark, and never more than that.
	pending []byte
	next    int64 // offset of the byte behind what came
	output  ends
	ended   bool
	code    int
}

func newHeard(nonce string, from, limit int64) *heard {
	return &heard{mark: []byte("\x00" + nonce + " "), next: from, output: ends{limit: limit}}
}

// take takes a piece of output and says whether the command has ended with it.
func (h *heard) take(piece sdk.CommandOutput) bool {
	if piece.Stream == sdk.Stderr {
		return false
	}
	if piece.Offset > h.next {
		h.output.add(h.pending) // what would have gone on with it is missing
		h.pending = h.pending[:0]
		h.output.lose(piece.Offset - h.next)
	}
	h.next = piece.Offset + int64(len(piece.Data))
	h.pending = append(h.pending, piece.Data...)
	for at := bytes.Index(h.pending, h.mark); at >= 0; at = bytes.Index(h.pending, h.mark) {
		h.output.add(h.pending[:at])
		h.pending = h.pending[at:]
		what, rest, whole := bytes.Cut(h.pending[len(h.mark):], []byte{0})
		switch {
		case !whole && len(what) <= maxCode:
			return false
		case whole && string(what) == markBegin:
			h.pending = rest
		case whole && codeForm.Match(what):
			h.next -= int64(len(rest)) // somebody in the background has printed it
			h.code, _ = strconv.Atoi(string(what))
			h.pending, h.ended = nil, true
			return true
		default: // a program that has found out the nonce prints what it likes
			h.output.add(h.pending[:len(h.mark)])
			h.pending = h.pending[len(h.mark):]
		}
	}
	keep := 0
	if at := bytes.LastIndexByte(h.pending, 0); at >= 0 && len(h.pending)-at < len(h.mark) {
		keep = len(h.pending) - at
	}
	h.output.add(h.pending[:len(h.pending)-keep])
	h.pending = append(h.pending[:0], h.pending[len(h.pending)-keep:]...)
	return false
}

func (h *heard) text() string {
	h.output.add(h.pending)
	h.pending = nil
	return h.output.text()
}

// ends keeps the beginning and the end of what is added, half of the limit each.
type ends struct {
	limit       int64 // in bytes
	first, last []byte
	lost        int64
}

func (e *ends) add(data []byte) {
	half := e.limit / 2
	if room := half - int64(len(e.first)); room > 0 && len(e.last) == 0 && e.lost == 0 {
		n := min(room, int64(len(data)))
		e.first, data = append(e.first, data[:n]...), data[n:]
	}
	e.last = append(e.last, data...)
	if over := int64(len(e.last)) - half; over > half { // not with each piece
		e.drop(over)
	}
}

func (e *ends) drop(over int64) {
	e.lost += over
	e.last = append(e.last[:0], e.last[over:]...)
}

// lose says that something is missing here.
func (e *ends) lose(n int64) {
	e.lost += n + int64(len(e.last))
	e.last = e.last[:0]
}

func (e *ends) text() string {
	if over := int64(len(e.last)) - e.limit/2; over > 0 {
		e.drop(over)
	}
	if e.lost == 0 {
		return validText(append(e.first, e.last...))
	}
	return validText(e.first) + fmt.Sprintf("\n[... %d bytes of the output are not shown ...]\n", e.lost) + validText(e.last)
}

func validText(output []byte) string { return strings.ToValidUTF8(string(output), "\uFFFD") }
