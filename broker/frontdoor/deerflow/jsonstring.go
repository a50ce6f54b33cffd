package deerflow

import (
	"bufio"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonString reads a text in JSON behind its first quote, as what it stands for. It ends at
// its last quote, which it takes too. As with encoding/json, half of a character is U+FFFD.
type jsonString struct {
	from *bufio.Reader
	// left of what was decoded and did not fit.
	left  []byte
	buf   [2 * utf8.UTFMax]byte
	ended bool
}

// Read implements io.Reader.
func (s *jsonString) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(s.left) > 0 {
			took := copy(p[n:], s.left)
			s.left, n = s.left[took:], n+took
			continue
		}
		if s.ended {
			break
		}
		if n > 0 && s.from.Buffered() < utf8.UTFMax {
			return n, nil // what is there is passed on before more is waited for
		}
		if took, err := s.plain(p[n:]); err != nil {
			return n, err
		} else if took > 0 {
			n += took
			continue
		}
		if err := s.special(); err != nil {
			return n, err
		}
	}
	if n == 0 && s.ended && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// plain passes on what is in the buffer and stands for itself.
func (s *jsonString) plain(p []byte) (int, error) {
	if _, err := s.from.Peek(1); err != nil {
		return 0, errNoJSON
	}
	there, _ := s.from.Peek(min(s.from.Buffered(), len(p)))
	n := 0
	for n < len(there) && there[n] >= ' ' && there[n] != '"' && there[n] != '\\' && there[n] < utf8.RuneSelf {
		n++
	}
	copy(p, there[:n])
	_, _ = s.from.Discard(n) // it is buffered
	return n, nil
}

// special reads one character that does not: an escape, the end, or one of several bytes.
func (s *jsonString) special() error {
	r, size, err := s.from.ReadRune()
	switch {
	case err != nil, r < ' ', r == utf8.RuneError && size == 1:
		return errNoJSON
	case r == '"':
		s.ended = true
		return nil
	case r == '\\':
		return s.escape()
	}
	s.left = utf8.AppendRune(s.buf[:0], r)
	return nil
}

func (s *jsonString) escape() error {
	c, err := s.from.ReadByte()
	if err != nil {
		return errNoJSON
	}
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return s.unicode()
	default:
		return errNoJSON
	}
	s.left = append(s.buf[:0], c)
	return nil
}

// unicode reads the digits of an escape, and of the second half of its character.
func (s *jsonString) unicode() error {
	r, err := s.digits()
	if err != nil {
		return err
	}
	if utf16.IsSurrogate(r) {
		if next, _ := s.from.Peek(6); len(next) == 6 && next[0] == '\\' && next[1] == 'u' {
			low, ok := hexOf(next[2:])
			if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
				_, _ = s.from.Discard(6) // it is buffered
				s.left = utf8.AppendRune(s.buf[:0], pair)
				return nil
			}
		}
		r = utf8.RuneError
	}
	s.left = utf8.AppendRune(s.buf[:0], r)
	return nil
}

func (s *jsonString) digits() (rune, error) {
	var digits [4]byte
	if _, err := io.ReadFull(s.from, digits[:]); err != nil {
		return 0, errNoJSON
	}
	r, ok := hexOf(digits[:])
	if !ok {
		return 0, errNoJSON
	}
	return r, nil
}

func hexOf(digits []byte) (rune, bool) {
	n, err := strconv.ParseUint(string(digits), 16, 16)
	return rune(n), err == nil
}
