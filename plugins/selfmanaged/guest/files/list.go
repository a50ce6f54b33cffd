package files

import (
	"context"
	"io/fs"
	"path"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// listBatch is how many entries one message holds, at most 4 KiB each.
const listBatch = 200

func (s *service) StatFile(_ context.Context, req *providerv1.StatFileRequest) (*providerv1.StatFileResponse, error) {
	at, err := s.place("path", req.GetPath())
	if err != nil {
		return nil, err
	}
	dir, base, err := at.locate(false)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	info, err := at.lstat(dir, base)
	if err != nil {
		return nil, err
	}
	return &providerv1.StatFileResponse{File: info}, nil
}

func (s *service) ListFiles(req *providerv1.ListFilesRequest, stream grpc.ServerStreamingServer[providerv1.ListFilesResponse]) error {
	at, err := s.place("path", req.GetPath())
	if err != nil {
		return err
	}
	selects, err := globOf(req.GetGlob())
	if err != nil {
		return err
	}
	dir, err := at.openDirectory()
	if err != nil {
		return err
	}
	defer dir.Close()
	limit := min(max(int(req.GetLimit()), 1), maxResults)
	truncated, batch := false, &providerv1.ListFilesResponse{}
	w := &walker{ctx: stream.Context(), depth: max(int(req.GetDepth()), 1), visit: func(f found) error {
		full := at.below(f.name)
		switch {
		case !selects(f.name):
			return nil
		case limit == 0, len(full) > maxPath:
			truncated = true
			return fs.SkipAll
		}
		limit--
		batch.Files = append(batch.Files, describe(full, f.info, f.target()))
		if len(batch.GetFiles()) < listBatch {
			return nil
		}
		err := stream.Send(batch)
		batch = &providerv1.ListFilesResponse{}
		return err
	}}
	if err := w.walk(dir); err != nil {
		return at.explain(err)
	}
	batch.Truncated = truncated || w.skipped
	return stream.Send(batch)
}

// target is where a symbolic link points, as it is written there.
func (f found) target() string {
	target := ""
	if f.info.isSymlink() {
		_ = asUser(func() (err error) {
			target, err = f.dir.readlink(f.base)
			return err
		})
	}
	return target
}

// globOf returns what tells whether a relative path matches; an empty glob
// matches everything.
func globOf(text string) (func(name string) bool, error) {
	if text != "" {
		text = path.Clean(text)
	}
	pattern, err := glob.Compile(text)
	if err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "glob", "%v", err)
	}
	return pattern.Match, nil
}
