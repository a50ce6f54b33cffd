package guestfiles

import (
	"context"
	"io/fs"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

// Calls are methods of sdk.Files, and sdk.FileModeSetter; a provider embeds it.
type Calls struct {
	do         func(ctx context.Context, instanceID string, req Request) (Answer, error)
	mostListed int
}

// NewCalls makes Calls that do all by do, which returns a refusal as an error, and lists
// that look at no more than mostListed files.
func NewCalls(do func(ctx context.Context, instanceID string, req Request) (Answer, error), mostListed int) Calls {
	return Calls{do, mostListed}
}

func (c Calls) file(ctx context.Context, instanceID string, req Request) (sdk.FileInfo, error) {
	answer, err := c.do(ctx, instanceID, req)
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
	_, err := c.do(ctx, instanceID, Request{Op: Remove, Path: name, Recursive: recursive})
	return err
}

// listedAtOnce is how many entries are passed on together.
const listedAtOnce = 500

// ListFiles implements sdk.Files.
func (c Calls) ListFiles(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (truncated bool, err error) {
	pattern, err := glob.Compile(req.Glob)
	if err != nil {
		return false, sdk.FieldErrorf(sdk.CodeInvalidRequest, "glob", "%w", err)
	}
	most := c.mostListed
	if req.Glob == "" {
		most = min(most, req.Limit)
	}
	answer, err := c.do(ctx, req.InstanceID, Request{Op: List, Path: req.Path, Depth: req.Depth, Most: most})
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
