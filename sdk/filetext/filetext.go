// Package filetext finds text in files as sdk.FileSearcher promises it: what a pattern
// means, which lines there are, what is shown of one, and when there are enough. It reads
// no files itself. Who does gives it their content, or lines of it: package localfiles for
// files of this machine, or a provider whose files are elsewhere.
//
//	search, err := filetext.NewSearch(req, found)
//	…
//	for each file, in the order of paths, while err is nil {
//		err = search.Text(ctx, path, content)
//	}
//	truncated, err := search.End(err)
//
// Where it costs to fetch a file, Needles and Endings say which lines and which files need
// not be: no match is in them.
package filetext

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

const (
	// LineBytes is how much of a line is looked at, its end included.
	LineBytes = 64 << 10
	// HeadBytes is how much of the beginning of a file must have no NUL for it to be text.
	HeadBytes = 8 << 10

	maxPattern = 1000
	maxResults = 100_000 // matches of one call
	batch      = 200     // matches that are passed on at once
)

// Search is one call of SearchFiles.
type Search struct {
	pattern   *expression
	glob      *glob.Glob
	limit     int
	truncated bool
	reader    *bufio.Reader
	pass      func([]sdk.FileMatch) error
	batch     []sdk.FileMatch
}

// NewSearch begins a search, which passes matches on to pass. It returns an *sdk.Error with
// CodeInvalidRequest where the pattern or the glob is none.
func NewSearch(req sdk.SearchFilesRequest, pass func([]sdk.FileMatch) error) (*Search, error) {
	selects, err := Glob(req.Glob)
	if err != nil {
		return nil, err
	}
	pattern, err := compile(req)
	if err != nil {
		return nil, err
	}
	return &Search{pattern: pattern, glob: selects, limit: min(max(req.Limit, 1), maxResults), pass: pass}, nil
}

// Glob compiles the glob of a request; the empty one matches everything.
func Glob(text string) (*glob.Glob, error) {
	if text != "" {
		text = path.Clean(text)
	}
	pattern, err := glob.Compile(text)
	if err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "glob", "%w", err)
	}
	return pattern, nil
}

func compile(req sdk.SearchFilesRequest) (*expression, error) {
	text := req.Pattern
	switch {
	case text == "":
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "pattern", "must not be empty")
	case len(text) > maxPattern:
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "pattern", "must have at most %d bytes", maxPattern)
	case req.Literal:
		text = regexp.QuoteMeta(text)
	}
	if req.IgnoreCase {
		text = "(?i:" + text + ")"
	}
	pattern, err := compileBounded(text)
	if err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "pattern", "%w", err)
	}
	return pattern, nil
}

// Selects reports whether a file is to be looked through by its path, relative to the
// directory that was asked for. For a file that was asked for itself that is its name.
func (s *Search) Selects(name string) bool { return s.glob.Match(name) }

// Needles say what each line that matches has in it: one of the needles. A needle is a
// sequence: one of the texts at its first place, directly followed by one of those at its
// second, and so on. There are none where nothing is known of such lines.
func (s *Search) Needles() [][][]string { return needlesOf(s.pattern.parsed) }

// Endings are texts one of which the path of each file that is selected ends with; none
// where nothing is known of them.
func (s *Search) Endings() []string { return s.glob.Endings() }

// Text looks through a file, unless it is not text. It returns fs.SkipAll when there are
// more matches than the limit, and what was found so far is for End to pass on.
func (s *Search) Text(ctx context.Context, name string, content io.Reader) error {
	if s.reader == nil {
		s.reader = bufio.NewReaderSize(nil, LineBytes)
	}
	s.reader.Reset(content)
	head, err := s.reader.Peek(HeadBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	for number := 1; ; number++ {
		line, last, err := s.next(ctx)
		if err != nil {
			return err
		}
		if last && len(line) == 0 {
			return nil
		}
		if err := s.Line(ctx, name, number, line); err != nil || last {
			return err
		}
	}
}

// next returns the beginning of the next line with its end, and whether it is the last.
func (s *Search) next(ctx context.Context) (line []byte, last bool, err error) {
	line, err = s.reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			if ctx.Err() != nil {
				return nil, false, ctx.Err()
			}
			_, err = s.reader.ReadSlice('\n')
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		last, err = true, nil
	case err == nil:
		err = ctx.Err()
	}
	return line, last, err
}

// Line looks at one line of a file, which counts from 1: the first LineBytes of it, its end
// included. It returns fs.SkipAll as Text does.
func (s *Search) Line(ctx context.Context, name string, number int, line []byte) error {
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	column, err := s.pattern.find(ctx, line)
	switch {
	case err != nil || column < 0:
		return err
	case s.limit == 0:
		s.truncated = true
		return fs.SkipAll
	}
	s.limit--
	s.batch = append(s.batch, sdk.FileMatch{Path: valid(name), Line: number, Column: column + 1, Text: shown(line)})
	if len(s.batch) < batch {
		return nil
	}
	err = s.pass(s.batch)
	s.batch = nil
	return err
}

// End ends a search after an error of it, or of what reads files, or none, and passes on
// what is left. It says whether there were more matches than the limit.
func (s *Search) End(err error) (truncated bool, _ error) {
	if err != nil && !errors.Is(err, fs.SkipAll) {
		return false, err
	}
	if len(s.batch) > 0 {
		if err := s.pass(s.batch); err != nil {
			return false, err
		}
		s.batch = nil
	}
	return s.truncated, nil
}

// valid is a name as it is shown.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// shown is what is shown of a line: no half of a character, and U+FFFD for what is none.
func shown(text []byte) string {
	line := valid(string(text[:min(len(text), sdk.MaxMatchText+utf8.UTFMax)]))
	if len(line) <= sdk.MaxMatchText {
		return line
	}
	end := sdk.MaxMatchText
	for end > 0 && !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end]
}

const (
	maxReplacePaths = 1000
	maxReplaceText  = 1 << 20
)

// CheckReplace refuses a request of ReplaceInFiles that cannot be, but for its paths.
func CheckReplace(req sdk.ReplaceInFilesRequest) error {
	switch {
	case req.Old == "":
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "old", "must not be empty")
	case len(req.Old) > maxReplaceText:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "old", "must have at most %d bytes", maxReplaceText)
	case len(req.New) > maxReplaceText:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "new", "must have at most %d bytes", maxReplaceText)
	case len(req.Paths) > maxReplacePaths:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "paths", "must be at most %d", maxReplacePaths)
	}
	return nil
}
