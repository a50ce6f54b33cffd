package dockerfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/moby/buildkit/frontend/dockerfile/command"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// MaxText is the longest Dockerfile, and the longest .dockerignore, in bytes.
const MaxText = 256 << 10

// maxInstructions of one file.
const maxInstructions = 500

// Error says what of a Dockerfile cannot be built.
type Error struct {
	Line   int // from 1; 0 for the whole
	Reason string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
}

// ImageError is why an image could not be looked up.
type ImageError struct {
	Line int
	Err  error
}

func (e *ImageError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Err) }

func (e *ImageError) Unwrap() error { return e.Err }

// instruction is one of a file, with its words as they are written.
type instruction struct {
	line     int
	name     string // in small letters
	words    []string
	json     bool // the words are those of a list in JSON
	flags    []string
	original string
	heredocs []parser.Heredoc
}

func (i instruction) errorf(format string, args ...any) error {
	return &Error{Line: i.line, Reason: fmt.Sprintf(format, args...)}
}

// parse reads the syntax of a file.
func parse(text []byte) (list []instruction, escape rune, err error) {
	if len(text) > MaxText {
		return nil, 0, &Error{Reason: fmt.Sprintf("it has more than %d bytes", MaxText)}
	}
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, 0, &Error{Reason: "it is no text"}
	}
	// The parser is for the files of whoever runs it, and has panicked before.
	defer func() {
		if r := recover(); r != nil {
			err = &Error{Reason: "it cannot be parsed"}
		}
	}()
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		e := &Error{Reason: Line(err.Error())}
		if at, ok := errors.AsType[*parser.LocationError](err); ok && len(at.Locations) > 0 && len(at.Locations[0]) > 0 {
			e.Line = at.Locations[0][0].Start.Line
		}
		return nil, 0, e
	}
	if len(parsed.AST.Children) > maxInstructions {
		return nil, 0, &Error{Reason: fmt.Sprintf("it has more than %d instructions", maxInstructions)}
	}
	for _, node := range parsed.AST.Children {
		i := instruction{
			line: node.StartLine, name: strings.ToLower(node.Value), flags: node.Flags,
			json: node.Attributes["json"], original: node.Original, heredocs: node.Heredocs,
		}
		for n := node.Next; n != nil; n = n.Next {
			i.words = append(i.words, n.Value)
		}
		if _, known := command.Commands[i.name]; !known {
			return nil, 0, i.errorf("%s is no instruction", quoted(node.Value))
		}
		list = append(list, i)
	}
	return list, parsed.EscapeToken, nil
}

// Line is text as one line that can be shown, of at most 150 bytes.
func Line(text string) string {
	const most = 150
	var b strings.Builder
	for _, r := range strings.TrimSpace(text) {
		if unicode.IsSpace(r) {
			r = ' '
		}
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			r = '?'
		}
		if b.Len()+utf8.RuneLen(r) > most {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

func quoted(word string) string { return `"` + Line(word) + `"` }
