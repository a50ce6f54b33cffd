package frontdoor

import (
	"bufio"
	"bytes"
	"io"
	"strings"
)

// Quoted is a text as one word of the shell.
func Quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Clipped is as much of a text that somebody has sent as a refusal may repeat.
func Clipped(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), 64)], "\uFFFD")
}

// Lines reads some of the lines of a text.
type Lines struct {
	from *bufio.Reader
	// skip is how many lines come before, and left how many are wanted.
	skip, left int
}

// NewLines returns a reader of count lines, with their ends, behind so many others.
func NewLines(from io.Reader, skip, count int) *Lines {
	return &Lines{bufio.NewReaderSize(from, 64<<10), skip, count}
}

// Read implements io.Reader.
func (l *Lines) Read(p []byte) (int, error) {
	for l.left > 0 && len(p) > 0 {
		if _, err := l.from.Peek(1); err != nil {
			return 0, err
		}
		piece, _ := l.from.Peek(min(l.from.Buffered(), len(p)))
		end := bytes.IndexByte(piece, '\n') + 1
		n := end
		if end == 0 {
			n = len(piece)
		}
		wanted := l.skip == 0
		if wanted {
			copy(p, piece[:n])
		}
		_, _ = l.from.Discard(n) // it is buffered
		switch {
		case end > 0 && wanted:
			l.left--
		case end > 0:
			l.skip--
		}
		if wanted {
			return n, nil
		}
	}
	return 0, io.EOF
}
