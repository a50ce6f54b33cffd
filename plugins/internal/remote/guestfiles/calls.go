package guestfiles

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/filetext"
)

// Calls are the methods of sdk.Files, sdk.FileSearcher and sdk.FileModeSetter; a provider embeds it.
type Calls struct {
	store   Store
	options Options
}

var (
	_ sdk.Files          = Calls{}
	_ sdk.FileSearcher   = Calls{}
	_ sdk.FileModeSetter = Calls{}
)

// Options are what differs between services.
type Options struct {
	// MostListed is at how many files a list looks.
	MostListed int
	// ReadAtOnce is how much of a file comes with its description, in bytes.
	ReadAtOnce int
	// Left is told where half a file may be left.
	Left func(instanceID string, err error)
}

// NewCalls makes Calls.
func NewCalls(store Store, options Options) Calls { return Calls{store, options} }

func (c Calls) file(ctx context.Context, instanceID string, req Request) (sdk.FileInfo, error) {
	answer, err := c.store.Do(ctx, instanceID, req)
	return answer.File.Info(), err
}

// StatFile implements sdk.Files.
func (c Calls) StatFile(ctx context.Context, instanceID, name string) (sdk.FileInfo, error) {
	return c.file(ctx, instanceID, Request{Op: Stat, Path: name})
}

// MakeDirectory implements sdk.Files.
func (c Calls) MakeDirectory(ctx context.Context, instanceID, name string, mode fs.FileMode) (sdk.FileInfo, error) {
	return c.file(ctx, instanceID, Request{Op: MkDir, Path: name, Mode: mode.Perm()})
}

// SetFileMode implements sdk.FileModeSetter.
func (c Calls) SetFileMode(ctx context.Context, instanceID, name string, mode fs.FileMode) (sdk.FileInfo, error) {
	return c.file(ctx, instanceID, Request{Op: Chmod, Path: name, Mode: mode.Perm()})
}

// MoveFile implements sdk.Files.
func (c Calls) MoveFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return c.file(ctx, req.InstanceID, Request{Op: Move, Path: req.From, To: req.To, Overwrite: req.Overwrite})
}

// CopyFile implements sdk.Files.
func (c Calls) CopyFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return c.file(ctx, req.InstanceID, Request{Op: Copy, Path: req.From, To: req.To, Overwrite: req.Overwrite})
}

// RemoveFile implements sdk.Files.
func (c Calls) RemoveFile(ctx context.Context, instanceID, name string, recursive bool) error {
	_, err := c.store.Do(ctx, instanceID, Request{Op: Remove, Path: name, Recursive: recursive})
	return err
}

// listedAtOnce is how many entries are passed on together.
const listedAtOnce = 500

// ListFiles implements sdk.Files.
func (c Calls) ListFiles(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (truncated bool, err error) {
	pattern, err := filetext.Glob(req.Glob)
	if err != nil {
		return false, err
	}
	most := c.options.MostListed
	if req.Glob == "" {
		most = min(most, req.Limit)
	}
	answer, err := c.store.Do(ctx, req.InstanceID, Request{Op: List, Path: req.Path, Depth: req.Depth, Most: most})
	if err != nil {
		return false, err
	}
	var selected []sdk.FileInfo
	for _, f := range answer.Files {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if pattern.Match(f.Below) {
			selected = append(selected, f.Info())
		}
	}
	truncated = answer.More || len(selected) > req.Limit
	for piece := range slices.Chunk(selected[:min(len(selected), req.Limit)], listedAtOnce) {
		if err := found(piece); err != nil {
			return false, err
		}
	}
	return truncated, nil
}

// ReadFile implements sdk.Files. A small part comes with the description.
func (c Calls) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	answer, err := c.store.Do(ctx, req.InstanceID, Request{Op: Open, Path: req.Path, Offset: req.Offset, Length: req.Length, Most: c.options.ReadAtOnce})
	if err != nil {
		return sdk.FileInfo{}, nil, err
	}
	if answer.Whole {
		return answer.File.Info(), io.NopCloser(bytes.NewReader(answer.Data)), nil
	}
	content, err := c.store.Open(ctx, req.InstanceID, answer.Real, answer.Offset, answer.Length)
	return answer.File.Info(), content, err
}

const (
	// draftTimeout bounds the making of a draft, tidyTimeout its end.
	draftTimeout = 30 * time.Second
	tidyTimeout  = 10 * time.Second
	// DraftPrefix begins the names of drafts.
	DraftPrefix = ".draft-"
)

// WriteFile implements sdk.Files. The content goes into a draft beside the file, which
// takes its place at the end.
func (c Calls) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	draft := Request{Path: req.Path, Draft: path.Join(path.Dir(path.Clean(req.Path)), DraftPrefix+remote.NewName()), Parents: req.MakeParents}
	do := func(ctx context.Context, op Op) (Answer, error) {
		draft.Op = op
		return c.store.Do(ctx, req.InstanceID, draft)
	}
	// Once begun it is waited for, so that nothing is made behind the back of what
	// tidies up.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), draftTimeout)
	defer cancel()
	made, err := do(making, Draft)
	if code := sdk.CodeOf(err); code != "" && code != sdk.CodeUnavailable && code != sdk.CodeConnectionFailed {
		return sdk.FileInfo{}, err // there certainly is none
	}
	if err == nil {
		err = c.store.Fill(ctx, req.InstanceID, draft, content)
	}
	if err == nil {
		draft.Mode = cmp.Or(req.Mode.Perm(), made.Mode, 0o644)
		var done Answer
		if done, err = do(ctx, Commit); err == nil {
			return done.File.Info(), nil
		}
	}
	// The context may be what has ended.
	tidying, done := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer done()
	if _, discarded := do(tidying, Discard); discarded != nil && sdk.CodeOf(discarded) != sdk.CodeNotFound {
		c.options.Left(req.InstanceID, discarded)
	}
	return sdk.FileInfo{}, err
}
