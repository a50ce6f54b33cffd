package provider

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Files = (*Provider)(nil)

const (
	// maxListed bounds what a list looks at.
	maxListed = 10_000
	// readAtOnce is how much of a file comes with its description, in bytes.
	readAtOnce = 256 << 10
	// pieceSize is how much of a file is uploaded at once, in bytes.
	pieceSize = 8 << 20
)

// files makes an operation in a sandbox.
func (p *Provider) files(ctx context.Context, instanceID string, req guestfiles.Request) (guestfiles.Answer, error) {
	if err := req.Check(); err != nil {
		return guestfiles.Answer{}, err
	}
	box, err := p.lookup(ctx, instanceID)
	if err != nil {
		return guestfiles.Answer{}, err
	}
	req.Workspace, req.Path, req.To, req.Draft = box.Workspace, box.real(req.Path), box.real(req.To), box.real(req.Draft)
	call := func(ctx context.Context) (guestfiles.Answer, error) { return guest.Do(ctx, box, req) }
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
	return answer, p.explain(ctx, err, sdk.CodeUnavailable, "use the files of the sandbox")
}

// ReadFile implements sdk.Files. A small part comes with the description; a large one
// is downloaded from its beginning on, for the service knows no other.
func (p *Provider) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	answer, err := p.files(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.Open, Path: req.Path, Offset: req.Offset, Length: req.Length, Most: readAtOnce})
	if err != nil {
		return sdk.FileInfo{}, nil, err
	}
	info := answer.File.Info()
	if answer.Whole {
		return info, io.NopCloser(bytes.NewReader(answer.Data)), nil
	}
	content, err := again(ctx, func(context.Context) (io.ReadCloser, error) { return p.data.Download(ctx, req.InstanceID, answer.Real) })
	if err != nil {
		return sdk.FileInfo{}, nil, p.explain(ctx, err, sdk.CodeUnavailable, "read a file")
	}
	if _, err := io.CopyN(io.Discard, content, answer.Offset); err != nil {
		return sdk.FileInfo{}, nil, p.explain(ctx, errors.Join(err, content.Close()), sdk.CodeUnavailable, "read a file")
	}
	return info, &part{io.LimitReader(content, answer.Length), content}, nil
}

// part is a part of a download.
type part struct {
	io.Reader
	io.Closer
}

// WriteFile implements sdk.Files. The content goes into a draft beside the file, which
// takes its place at the end.
func (p *Provider) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	if req.Path == "" {
		return sdk.FileInfo{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "path", "is empty")
	}
	box, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	draft := path.Join(path.Dir(path.Clean(req.Path)), ".draft-"+newName())
	// Once begun it is waited for, so that nothing is made behind the back of what
	// tidies up.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*cleanUp)
	defer cancel()
	made, err := p.files(making, req.InstanceID, guestfiles.Request{Op: guestfiles.Draft, Path: req.Path, Draft: draft, Parents: req.MakeParents})
	if code := sdk.CodeOf(err); code != "" && code != sdk.CodeUnavailable && code != sdk.CodeConnectionFailed {
		return sdk.FileInfo{}, err
	}
	var info sdk.FileInfo
	if err == nil {
		if err = p.fill(ctx, box, req, draft, content); err == nil {
			var done guestfiles.Answer
			done, err = p.files(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.Commit, Path: req.Path, Draft: draft, Mode: cmp.Or(req.Mode.Perm(), made.Mode, 0o644)})
			info = done.File.Info()
		}
	}
	if err == nil {
		return info, nil
	}
	// The context may be what has ended.
	tidying, done := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer done()
	if _, discarded := p.files(tidying, req.InstanceID, guestfiles.Request{Op: guestfiles.Discard, Path: req.Path, Draft: draft}); discarded != nil && sdk.CodeOf(discarded) != sdk.CodeNotFound {
		p.log.Warn("half a file may be left in a sandbox", "sandbox", box.ID, "error", p.secrets.Error(discarded))
	}
	return sdk.FileInfo{}, err
}

// fill puts content into a draft, piece by piece.
func (p *Provider) fill(ctx context.Context, box sandbox, req sdk.WriteFileRequest, draft string, content io.Reader) error {
	buffer := make([]byte, guest.Inline)
	for offset := int64(0); ; {
		n, err := io.ReadFull(content, buffer)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return err
		}
		if n > 0 {
			if err := p.appendTo(ctx, box, guestfiles.Request{Op: guestfiles.Append, Path: req.Path, Draft: draft, Offset: offset, Data: buffer[:n]}); err != nil {
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

// appendTo adds a piece to a draft. A large one is uploaded first, by the service, which
// need not be the user that commands run as.
func (p *Provider) appendTo(ctx context.Context, box sandbox, req guestfiles.Request) error {
	if len(req.Data) > guest.Inline {
		data, name := req.Data, guest.Scratch(newName())
		req.Data, req.Upload, req.Length = nil, name, int64(len(data))
		_, err := again(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, box.Upload(ctx, name, data) })
		if err != nil {
			return p.explain(ctx, err, sdk.CodeUnavailable, "upload a file")
		}
	}
	_, err := p.files(ctx, box.ID, req)
	return err
}

// workspace is where code works by the contract.
const workspace = "/workspace"

// real is where a path of the contract is in a sandbox whose code may not make the
// directory that the contract names.
func (s sandbox) real(name string) string { return moved(name, workspace, s.Workspace) }

// shown is the opposite.
func (s sandbox) shown(name string) string { return moved(name, s.Workspace, workspace) }

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
