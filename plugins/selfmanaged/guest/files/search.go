package files

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

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

const (
	maxPattern   = 1000
	maxMatchText = 1 << 10 // sdk.MaxMatchText
	matchBatch   = 100
	// lineBytes is how much of a line is looked at.
	lineBytes = 64 << 10
)

func (s *service) SearchFiles(req *providerv1.SearchFilesRequest, stream grpc.ServerStreamingServer[providerv1.SearchFilesResponse]) error {
	at, err := s.place("path", req.GetPath())
	if err != nil {
		return err
	}
	selects, err := globOf(req.GetGlob())
	if err != nil {
		return err
	}
	pattern, err := compile(req)
	if err != nil {
		return err
	}
	parent, base, err := at.locate(true)
	if err != nil {
		return err
	}
	defer parent.Close()
	search := &search{
		ctx: stream.Context(), at: at, pattern: pattern, limit: min(max(int(req.GetLimit()), 1), maxResults),
		lines: bufio.NewReaderSize(nil, lineBytes), send: stream.Send, batch: &providerv1.SearchFilesResponse{},
	}
	var what info
	err = asUser(func() (err error) {
		what, err = parent.lstat(base)
		return err
	})
	skipped := false
	switch {
	case err != nil:
		return at.explain(err)
	case what.isDir():
		dir, err := at.openDirectory()
		if err != nil {
			return err
		}
		defer dir.Close()
		search.many = true
		w := &walker{ctx: search.ctx, depth: anyDepth, visit: func(f found) error {
			if !f.info.isRegular() || !selects(f.name) || len(at.below(f.name)) > maxPath {
				return nil
			}
			return search.file(f.dir, f.base, at.below(f.name))
		}}
		err, skipped = w.walk(dir), w.skipped
		if err != nil {
			return at.explain(err)
		}
	default:
		if !selects(path.Base(at.name)) {
			break
		}
		if err := search.file(parent, base, at.String()); err != nil && !errors.Is(err, fs.SkipAll) {
			return at.explain(err)
		}
	}
	search.batch.Truncated = search.truncated || skipped
	return stream.Send(search.batch)
}

func compile(req *providerv1.SearchFilesRequest) (*expression, error) {
	text := req.GetPattern()
	switch {
	case text == "":
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "pattern", "must not be empty")
	case len(text) > maxPattern:
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "pattern", "must have at most %d bytes", maxPattern)
	case req.GetLiteral():
		text = regexp.QuoteMeta(text)
	}
	if req.GetIgnoreCase() {
		text = "(?i:" + text + ")"
	}
	pattern, err := compileBounded(text)
	if err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "pattern", "%v", err)
	}
	return pattern, nil
}

// search is one call of SearchFiles.
type search struct {
	ctx       context.Context
	at        place
	pattern   *expression
	limit     int
	many      bool // a directory is looked through
	truncated bool
	lines     *bufio.Reader
	send      func(*providerv1.SearchFilesResponse) error
	batch     *providerv1.SearchFilesResponse
}

// file looks through a file, unless it is not text. It returns fs.SkipAll when
// there are more matches than the limit.
func (s *search) file(dir *directory, name, full string) error {
	file, _, err := s.at.openRegular(dir, name)
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
	for number := int32(1); ; number++ {
		line, last, err := s.next()
		if err != nil {
			return err
		}
		if last && len(line) == 0 {
			return nil
		}
		at, err := s.pattern.find(s.ctx, line)
		if err != nil {
			return err
		}
		if at >= 0 {
			if err := s.found(full, number, at+1, line); err != nil {
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

func (s *search) found(path string, line int32, column int, text []byte) error {
	if s.limit == 0 {
		s.truncated = true
		return fs.SkipAll
	}
	s.limit--
	shown := validtext.Clip(string(text[:min(len(text), maxMatchText+utf8.UTFMax)]), maxMatchText)
	s.batch.Matches = append(s.batch.Matches, &providerv1.FileMatch{
		Path: strings.ToValidUTF8(path, "\uFFFD"), Line: line, Column: int32(column), Text: shown,
	})
	if len(s.batch.GetMatches()) < matchBatch {
		return nil
	}
	err := s.send(s.batch)
	s.batch = &providerv1.SearchFilesResponse{}
	return err
}
