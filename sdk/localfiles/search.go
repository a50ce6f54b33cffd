package localfiles

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

const (
	maxPattern = 1000
	// lineBytes is how much of a line is looked at.
	lineBytes = 64 << 10
	// largePattern is how many instructions a pattern may have to be matched by the
	// fast way, which cannot be interrupted within a line.
	largePattern = 200
)

// SearchFiles implements sdk.FileSearcher.
func (f *Files) SearchFiles(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (truncated bool, err error) {
	selects, err := glob.Compile(req.Glob)
	if err != nil {
		return false, sdk.FieldErrorf(sdk.CodeInvalidRequest, "glob", "%w", err)
	}
	find, err := finder(ctx, req)
	if err != nil {
		return false, err
	}
	at, err := f.at(req.InstanceID, "path", req.Path, true)
	return using(at, err, func(at place) (bool, error) {
		info, err := at.root.Lstat(at.name)
		if err != nil {
			return false, err
		}
		s := &search{ctx: ctx, find: find, limit: min(req.Limit, maxResults), found: found, lines: bufio.NewReaderSize(nil, lineBytes)}
		w := &walker{ctx: ctx, at: at, depth: anyDepth, visit: func(name string, info fs.FileInfo) error {
			entry := at.below(name)
			if !info.Mode().IsRegular() || !selects.Match(name) || len(entry.String()) > maxPath {
				return nil
			}
			err := s.file(entry)
			if _, unreadable := errors.AsType[*fs.PathError](err); unreadable && ctx.Err() == nil {
				return nil // it has gone, or may not be read: not this caller's matter
			}
			return err
		}}
		switch {
		case info.IsDir():
			err = w.walk()
		case selects.Match(at.base()):
			if err = s.file(at); errors.Is(err, fs.SkipAll) {
				err = nil
			}
		}
		if err == nil && len(s.batch) > 0 {
			err = found(s.batch)
		}
		return s.truncated || w.skipped, err
	})
}

// finder returns what finds the pattern in a line, or -1.
func finder(ctx context.Context, req sdk.SearchFilesRequest) (func(line []byte) int, error) {
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
	pattern, err := regexp.Compile(text)
	if err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "pattern", "is not in RE2 syntax: %w", err)
	}
	locate := pattern.FindIndex
	if size(text) > largePattern {
		locate = func(line []byte) []int { return pattern.FindReaderIndex(&cancelled{ctx: ctx, rest: line}) }
	}
	return func(line []byte) int {
		if at := locate(line); at != nil {
			return at[0]
		}
		return -1
	}, nil
}

// size is how many instructions a pattern has: each may be tried for each letter.
func size(text string) int {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return len(program.Inst)
}

// cancelled is a line that ends with a context.
type cancelled struct {
	ctx  context.Context //nolint:containedctx // it lives as long as one match
	rest []byte
	read int
}

// ReadRune implements io.RuneReader.
func (c *cancelled) ReadRune() (rune, int, error) {
	if c.read++; c.read%256 == 0 && c.ctx.Err() != nil || len(c.rest) == 0 {
		return 0, 0, io.EOF
	}
	r, n := utf8.DecodeRune(c.rest)
	c.rest = c.rest[n:]
	return r, n, nil
}

// search is one call of SearchFiles.
type search struct {
	ctx       context.Context //nolint:containedctx // it lives as long as one call
	find      func(line []byte) int
	limit     int
	truncated bool
	lines     *bufio.Reader
	batch     []sdk.FileMatch
	found     func([]sdk.FileMatch) error
}

// file looks through a file, unless it is not text. It returns fs.SkipAll when there
// are more matches than the limit.
func (s *search) file(at place) error {
	file, _, err := at.open()
	if err != nil {
		return err
	}
	defer file.Close()
	s.lines.Reset(file)
	head, err := s.lines.Peek(8 << 10)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	for number := 1; ; number++ {
		line, last, err := s.next()
		if err != nil {
			return err
		}
		if last && len(line) == 0 {
			return nil
		}
		column := s.find(line)
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if column >= 0 {
			if err := s.match(at, number, column+1, line); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// next returns the beginning of the next line, without its end, and whether it is the
// last.
func (s *search) next() (line []byte, last bool, err error) {
	line, err = s.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			if s.ctx.Err() != nil {
				return nil, false, s.ctx.Err()
			}
			_, err = s.lines.ReadSlice('\n')
		}
	}
	if errors.Is(err, io.EOF) {
		last, err = true, nil
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), last, err
}

func (s *search) match(at place, line, column int, text []byte) error {
	if s.limit == 0 {
		s.truncated = true
		return fs.SkipAll
	}
	s.limit--
	shown := text[:min(len(text), sdk.MaxMatchText)]
	for n := len(shown); len(shown) < len(text) && n > 0 && n > len(shown)-utf8.UTFMax; n-- { // no half letter
		if utf8.RuneStart(text[n]) {
			shown = text[:n]
			break
		}
	}
	s.batch = append(s.batch, sdk.FileMatch{Path: at.String(), Line: line, Column: column, Text: string(shown)})
	if len(s.batch) < listBatch {
		return nil
	}
	err := s.found(s.batch)
	s.batch = nil
	return err
}
