package filetext

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

// Bounds on searches. A pattern of a thousand bytes can count to a million, and each
// byte of a line is compared with all of that.
const (
	// maxSteps is how many a pattern may have when its repetitions are written out.
	maxSteps = 10_000
	// quickSteps of the pattern times bytes of the line take some milliseconds.
	quickSteps = 1 << 20
	// askEvery is how many characters are looked at between two questions whether
	// anybody still wants to know.
	askEvery = 256
)

// expression is a pattern of whoever asks. The time that it takes is bounded by its
// length times that of the line, and ends with the context.
type expression struct {
	*regexp.Regexp
	steps  int
	parsed *syntax.Regexp
}

func compileBounded(text string) (*expression, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("is not in RE2 syntax: %w", err)
	}
	parsed = parsed.Simplify()
	program, err := syntax.Compile(parsed)
	switch {
	case err != nil:
		return nil, fmt.Errorf("is not in RE2 syntax: %w", err)
	case len(program.Inst) > maxSteps:
		return nil, fmt.Errorf("has repetitions that come to %d steps; at most %d are allowed", len(program.Inst), maxSteps)
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("is not in RE2 syntax: %w", err)
	}
	return &expression{compiled, len(program.Inst), parsed}, nil
}

// find returns where the first match in a line begins, -1 for none.
func (e *expression) find(ctx context.Context, line []byte) (int, error) {
	_, literal := e.LiteralPrefix()
	if literal || e.steps*len(line) <= quickSteps {
		if at := e.FindIndex(line); at != nil {
			return at[0], nil
		}
		return -1, nil
	}
	runes := &cancellable{ctx: ctx, text: line}
	at := e.FindReaderIndex(runes)
	switch {
	case runes.err != nil:
		return -1, runes.err
	case at == nil:
		return -1, nil
	}
	return at[0], nil
}

// cancellable reads the characters of a text until its context ends.
type cancellable struct {
	ctx   context.Context
	text  []byte
	asked int
	err   error
}

// ReadRune implements io.RuneReader.
func (c *cancellable) ReadRune() (rune, int, error) {
	if c.asked--; c.asked < 0 {
		c.asked = askEvery
		if c.err = c.ctx.Err(); c.err != nil {
			return 0, 0, io.EOF
		}
	}
	if len(c.text) == 0 {
		return 0, 0, io.EOF
	}
	r, size := utf8.DecodeRune(c.text)
	c.text = c.text[size:]
	return r, size, nil
}
