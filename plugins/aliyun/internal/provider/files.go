package provider

import (
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// maxListed bounds what a list looks at.
	maxListed = 10_000
	// readAtOnce is how much of a file comes with its description, in bytes.
	readAtOnce = 256 << 10
	// pieceSize is how much of a file is uploaded at once, in bytes.
	pieceSize = 8 << 20
)

// store is a guestfiles.Store.
type store struct{ p *Provider }

// Do implements guestfiles.Store.
func (s store) Do(ctx context.Context, instanceID string, req guestfiles.Request) (guestfiles.Answer, error) {
	if err := req.Check(); err != nil {
		return guestfiles.Answer{}, err
	}
	box, err := s.p.lookup(ctx, instanceID)
	if err != nil {
		return guestfiles.Answer{}, err
	}
	req.Workspace, req.Path, req.To, req.Draft = box.Workspace, box.real(req.Path), box.real(req.To), box.real(req.Draft)
	call := func(ctx context.Context) (guestfiles.Answer, error) { return place.Do(ctx, box, req) }
	var answer guestfiles.Answer
	if req.Op.Repeatable() {
		answer, err = ask(ctx, call)
	} else {
		answer, err = call(ctx)
	}
	answer.File.Path = box.shown(answer.File.Path)
	for i := range answer.Files {
		answer.Files[i].Path = box.shown(answer.Files[i].Path)
	}
	return answer, s.p.explain(ctx, err, sdk.CodeUnavailable, "use the files of the sandbox")
}

// Open implements guestfiles.Store. A download is from the beginning of a file on, for the
// service knows no other.
func (s store) Open(ctx context.Context, instanceID, name string, offset, length int64) (io.ReadCloser, error) {
	box, err := s.p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	content, err := again(ctx, func(context.Context) (io.ReadCloser, error) {
		return s.p.data.Download(ctx, instanceID, box.real(name))
	})
	if err != nil {
		return nil, s.p.explain(ctx, err, sdk.CodeUnavailable, "read a file")
	}
	if _, err := io.CopyN(io.Discard, content, offset); err != nil {
		return nil, s.p.explain(ctx, errors.Join(err, content.Close()), sdk.CodeUnavailable, "read a file")
	}
	return &part{io.LimitReader(content, length), content}, nil
}

// part is a part of a download.
type part struct {
	io.Reader
	io.Closer
}

// Fill implements guestfiles.Store: it puts content into a draft, piece by piece.
func (s store) Fill(ctx context.Context, instanceID string, req guestfiles.Request, content io.Reader) error {
	req.Op = guestfiles.Append
	buffer := make([]byte, place.Inline)
	for offset := int64(0); ; {
		n, err := io.ReadFull(content, buffer)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return err
		}
		if n > 0 {
			req.Offset, req.Data = offset, buffer[:n]
			if err := s.add(ctx, instanceID, req); err != nil {
				return err
			}
		}
		if ended {
			break
		}
		offset += int64(n)
		if len(buffer) < pieceSize {
			buffer = make([]byte, pieceSize)
		}
	}
	return nil
}

// add adds a piece to a draft. A large one is uploaded first, by the service, which need
// not be the user that commands run as.
func (s store) add(ctx context.Context, instanceID string, req guestfiles.Request) error {
	if len(req.Data) > place.Inline {
		data, name := req.Data, place.Scratch(remote.NewName())
		req.Data, req.Upload, req.Length = nil, name, int64(len(data))
		_, err := again(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.p.data.Upload(ctx, instanceID, name, data)
		})
		if err != nil {
			return s.p.explain(ctx, err, sdk.CodeUnavailable, "upload a file")
		}
	}
	_, err := s.Do(ctx, instanceID, req)
	return err
}

// real is where a path of the contract is in a sandbox whose code may not make the
// directory that the contract names.
func (s sandbox) real(name string) string { return moved(name, remote.Workspace, s.Workspace) }

// shown is the opposite.
func (s sandbox) shown(name string) string { return moved(name, s.Workspace, remote.Workspace) }

func moved(name, from, to string) string {
	clean := path.Clean(name)
	if from == to || clean != from && !strings.HasPrefix(clean, from+"/") {
		return name
	}
	return to + clean[len(from):]
}

// absolute is a path as the sandbox resolves it; empty for the workspace.
func absolute(box sandbox, name string) string {
	if path.IsAbs(name) {
		return box.real(path.Clean(name))
	}
	return path.Join(box.Workspace, name)
}
