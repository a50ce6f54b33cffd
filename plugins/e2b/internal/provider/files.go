package provider

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Files = (*Provider)(nil)

// files makes an operation in a sandbox.
func (p *Provider) files(ctx context.Context, instanceID string, req guestfiles.Request) (guestfiles.Answer, error) {
	for field, name := range map[string]string{"path": req.Path, "to": req.To} {
		switch {
		case name == "" && (field == "path" || req.Op == guestfiles.Move || req.Op == guestfiles.Copy):
			return guestfiles.Answer{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "is empty")
		case strings.ContainsRune(name, 0):
			return guestfiles.Answer{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "has a NUL in it")
		}
	}
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return guestfiles.Answer{}, err
	}
	program, err := req.Program()
	if err != nil {
		return guestfiles.Answer{}, err
	}
	text, exit, err := p.script(ctx, sb, program)
	if err != nil {
		return guestfiles.Answer{}, err
	}
	return guestfiles.ReadAnswer(text, exit)
}

func (p *Provider) file(ctx context.Context, instanceID string, req guestfiles.Request) (sdk.FileInfo, error) {
	answer, err := p.files(ctx, instanceID, req)
	return answer.File.Info(), err
}

// StatFile implements sdk.Files.
func (p *Provider) StatFile(ctx context.Context, instanceID, name string) (sdk.FileInfo, error) {
	return p.file(ctx, instanceID, guestfiles.Request{Op: guestfiles.Stat, Path: name})
}

// MakeDirectory implements sdk.Files.
func (p *Provider) MakeDirectory(ctx context.Context, instanceID, name string, mode fs.FileMode) (sdk.FileInfo, error) {
	return p.file(ctx, instanceID, guestfiles.Request{Op: guestfiles.MkDir, Path: name, Mode: mode.Perm()})
}

// MoveFile implements sdk.Files.
func (p *Provider) MoveFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return p.file(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.Move, Path: req.From, To: req.To, Overwrite: req.Overwrite})
}

// CopyFile implements sdk.Files.
func (p *Provider) CopyFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return p.file(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.Copy, Path: req.From, To: req.To, Overwrite: req.Overwrite})
}

// RemoveFile implements sdk.Files.
func (p *Provider) RemoveFile(ctx context.Context, instanceID, name string, recursive bool) error {
	_, err := p.files(ctx, instanceID, guestfiles.Request{Op: guestfiles.Remove, Path: name, Recursive: recursive})
	return err
}

const (
	// maxListed bounds what a list looks at.
	maxListed = 50_000
	// listedAtOnce is how many entries are passed on together.
	listedAtOnce = 500
)

// ListFiles implements sdk.Files.
func (p *Provider) ListFiles(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (truncated bool, err error) {
	if req.Glob != "" && !doublestar.ValidatePattern(req.Glob) {
		return false, sdk.FieldErrorf(sdk.CodeInvalidRequest, "glob", "is not a pattern")
	}
	most := maxListed
	if req.Glob == "" {
		most = min(most, req.Limit)
	}
	answer, err := p.files(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.List, Path: req.Path, Depth: req.Depth, Most: most})
	if err != nil {
		return false, err
	}
	root := strings.TrimSuffix(absolute(req.Path), "/") + "/"
	var some []sdk.FileInfo
	count, more := 0, answer.More
	for _, f := range answer.Files {
		if req.Glob != "" && !doublestar.MatchUnvalidated(req.Glob, strings.TrimPrefix(f.Path, root)) {
			continue
		}
		if count == req.Limit {
			more = true
			break
		}
		count++
		if some = append(some, f.Info()); len(some) == listedAtOnce {
			if err := found(some); err != nil {
				return false, err
			}
			some = nil
		}
	}
	if len(some) > 0 {
		if err := found(some); err != nil {
			return false, err
		}
	}
	return more, nil
}

// absolute is a path as the sandbox resolves it.
func absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(workspace, name)
}

// ReadFile implements sdk.Files.
func (p *Provider) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	answer, err := p.files(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.Open, Path: req.Path})
	if err != nil {
		return sdk.FileInfo{}, nil, err
	}
	info := answer.File.Info()
	offset := req.Offset
	if offset < 0 {
		offset = max(info.Size+offset, 0)
	}
	if offset >= info.Size {
		return info, io.NopCloser(bytes.NewReader(nil)), nil
	}
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.FileInfo{}, nil, err
	}
	var content io.ReadCloser
	err = p.envd(ctx, sb, func(c *envd.Client) (err error) {
		content, err = c.Download(ctx, answer.Real, offset, req.Length)
		return err
	})
	if err != nil {
		return sdk.FileInfo{}, nil, p.explain(ctx, sb, err)
	}
	return info, content, nil
}

const (
	// draftTimeout bounds the making of a draft.
	draftTimeout = 30 * time.Second
	draftPrefix  = ".draft-"
)

// WriteFile implements sdk.Files. The content goes into a draft beside the file, which
// takes its place at the end.
func (p *Provider) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	name := absolute(req.Path)
	draft := path.Join(path.Dir(name), draftPrefix+randomName())
	// Once begun it is waited for, so that nothing is made behind the back of what
	// tidies up.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), draftTimeout)
	defer cancel()
	made, err := p.files(making, req.InstanceID, guestfiles.Request{Op: guestfiles.Draft, Path: req.Path, Draft: draft, Parents: req.MakeParents})
	if err != nil {
		return sdk.FileInfo{}, err
	}
	info, err := p.fill(ctx, req, draft, cmp.Or(req.Mode.Perm(), made.Mode, 0o644), content)
	if err == nil {
		return info, nil
	}
	// The context may be what has ended.
	tidying, done := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer done()
	if _, discarded := p.files(tidying, req.InstanceID, guestfiles.Request{Op: guestfiles.Discard, Path: req.Path, Draft: draft}); discarded != nil {
		p.logger.Warn("half a file may be left in a sandbox", "error", discarded)
	}
	return sdk.FileInfo{}, err
}

// fill puts content into a draft and gives it its name.
func (p *Provider) fill(ctx context.Context, req sdk.WriteFileRequest, draft string, mode fs.FileMode, content io.Reader) (sdk.FileInfo, error) {
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	source := &watchedReader{Reader: content}
	// Not through p.envd: content can be read once.
	err = envd.New(p.endpoint(sb, envd.Port, p.streams), p.settings.User).Upload(ctx, draft, source)
	switch {
	case source.err != nil:
		return sdk.FileInfo{}, source.err
	case err != nil:
		return sdk.FileInfo{}, p.explain(ctx, sb, err)
	}
	return p.file(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.Commit, Path: req.Path, Draft: draft, Mode: mode})
}

// watchedReader remembers what went wrong on the reading side.
type watchedReader struct {
	io.Reader
	err error
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
