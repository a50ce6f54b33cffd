package localfiles

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"regexp"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	maxPattern = 1000
	// lineBytes is how much of a line is looked at.
	lineBytes = 64 << 10
)

// SearchFiles implements sdk.FileSearcher.
func (f *Files) SearchFiles(ctx context.Context, req sdk.SearchFilesRequest, pass func([]sdk.FileMatch) error) (truncated bool, err error) {
	at, err := f.place(req.InstanceID, "path", req.Path)
	if err != nil {
		return false, err
	}
	selects, err := globOf(req.Glob)
	if err != nil {
		return false, err
	}
	pattern, err := compile(req)
	if err != nil {
		return false, err
	}
	parent, base, err := at.locate(true)
	if err != nil {
		return false, err
	}
	defer parent.close()
	what, err := rightly(at, func() (info, error) { return parent.lstat(base) })
	if err != nil {
		return false, at.explain(err)
	}
	s := &search{
		ctx: ctx, pattern: pattern, limit: min(max(req.Limit, 1), maxResults),
		lines: bufio.NewReaderSize(nil, lineBytes), pass: pass, many: what.isDir(),
	}
	w := &walker{ctx: ctx, at: at, depth: anyDepth, visit: func(f found) error {
		entry := at.below(f.name)
		if !f.info.isRegular() || !selects(f.name) || len(entry.String()) > maxPath {
			return nil
		}
		return s.file(f.dir, f.base, entry)
	}}
	if s.many {
		dir, openErr := at.open()
		if openErr != nil {
			return false, openErr
		}
		defer dir.close()
		err = w.walk(dir)
	} else if selects(path.Base(at.String())) {
		err = s.file(parent, base, at)
	}
	if err != nil && !errors.Is(err, fs.SkipAll) {
		return false, at.explain(err)
	}
	if len(s.batch) > 0 {
		if err := pass(s.batch); err != nil {
			return false, err
		}
	}
	return s.truncated || w.skipped, nil
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

// search is one call of SearchFiles.
type search struct {
	ctx       context.Context //nolint:containedctx // it lives as long as one call
	pattern   *expression
	limit     int
	many      bool // a directory is looked through
	truncated bool
	lines     *bufio.Reader
	pass      func([]sdk.FileMatch) error
	batch     []sdk.FileMatch
}

// file looks through a file, unless it is not text. It returns fs.SkipAll when
// there are more matches than the limit.
func (s *search) file(dir *directory, name string, at place) error {
	file, _, err := at.openRegular(dir, name)
	switch {
	case err != nil && s.many && s.ctx.Err() == nil:
		return nil // it has gone, or may not be read: not this caller's matter
	case err != nil:
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
		column, err := s.pattern.find(s.ctx, line)
		if err != nil {
			return err
		}
		if column >= 0 {
			if err := s.found(at, number, column+1, line); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// next returns the beginning of the next line, without its end, and whether it
// is the last.
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
	switch {
	case errors.Is(err, io.EOF):
		last, err = true, nil
	case err == nil:
		err = s.ctx.Err()
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), last, err
}

func (s *search) found(at place, line, column int, text []byte) error {
	if s.limit == 0 {
		s.truncated = true
		return fs.SkipAll
	}
	s.limit--
	s.batch = append(s.batch, sdk.FileMatch{Path: valid(at.String()), Line: line, Column: column, Text: shown(text)})
	if len(s.batch) < listBatch {
		return nil
	}
	err := s.pass(s.batch)
	s.batch = nil
	return err
}

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
