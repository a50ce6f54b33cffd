package pluginhost

import (
	"errors"
	"strings"
)

const (
	// lastLines of a plugin that did not start are shown, each up to lastLineLength
	// characters.
	lastLines      = 10
	lastLineLength = 400
)

// WithLastWords is an error with what a plugin that did not start wrote to its standard
// error last: for the operator, who started it. Secrets are blanked as in the log.
func WithLastWords(err error) error {
	lines := strings.FieldsFunc(Stderr(err), func(r rune) bool { return r == '\n' })
	if len(lines) == 0 {
		return err
	}
	lines = lines[max(0, len(lines)-lastLines):]
	for i, line := range lines {
		if runes := []rune(line); len(runes) > lastLineLength {
			line = string(runes[:lastLineLength]) + "…"
		}
		lines[i] = oneLine(strings.ReplaceAll(line, "\t", " "))
	}
	return &lastWords{error: err, lines: lines}
}

type lastWords struct {
	error
	lines []string
}

// Error ends with the lines.
func (e *lastWords) Error() string {
	return e.error.Error() + "; the last that it wrote to standard error:\n  " + strings.Join(e.lines, "\n  ")
}

// Unwrap returns the error without them.
func (e *lastWords) Unwrap() error { return e.error }

// LastWord is the last line of what WithLastWords has added, "" if it has added none.
func LastWord(err error) string {
	if e, ok := errors.AsType[*lastWords](err); ok {
		return e.lines[len(e.lines)-1]
	}
	return ""
}
