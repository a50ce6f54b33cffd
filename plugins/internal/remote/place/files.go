package place

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// fileAccess does one thing with a file.
var fileAccess = pack(guestfiles.Program(`print("` + prefix + `" + json.dumps(answer(asked())))`))

// Do does something with a file. A refusal is an *sdk.Error with the code that it has in
// the contract.
func Do(ctx context.Context, r Runner, req guestfiles.Request) (guestfiles.Answer, error) {
	var a guestfiles.Answer
	output, err := send(ctx, r, fileAccess, req)
	if err == nil {
		err = parse(output, &a)
	}
	if err != nil {
		return a, err
	}
	return a, a.Refusal()
}

// Store is a guestfiles.Store, but for Open.
type Store struct{ Service Service }

// Do implements guestfiles.Store.
func (s Store) Do(ctx context.Context, instanceID string, req guestfiles.Request) (guestfiles.Answer, error) {
	if err := req.Check(); err != nil {
		return guestfiles.Answer{}, err
	}
	box, err := s.Service.Box(ctx, instanceID)
	if err != nil {
		return guestfiles.Answer{}, err
	}
	req.Workspace, req.Path, req.To, req.Draft = box.Workspace, box.Real(req.Path), box.Real(req.To), box.Real(req.Draft)
	req.Paths = slices.Clone(req.Paths)
	for i, name := range req.Paths {
		req.Paths[i] = box.Real(name)
	}
	call := func(ctx context.Context) (guestfiles.Answer, error) { return Do(ctx, box, req) }
	var answer guestfiles.Answer
	if req.Op.Repeatable() {
		answer, err = Ask(ctx, s.Service, call)
	} else {
		answer, err = call(ctx)
	}
	answer.File.Path = box.Shown(answer.File.Path)
	for i := range answer.Files {
		answer.Files[i].Path = box.Shown(answer.Files[i].Path)
	}
	return answer, s.Service.Explain(ctx, err, "use the files of the sandbox")
}

// pieceSize is how much of a file is uploaded at once, in bytes.
const pieceSize = 8 << 20

// Fill implements guestfiles.Store: it puts content into a draft, piece by piece.
func (s Store) Fill(ctx context.Context, instanceID string, req guestfiles.Request, content io.Reader) error {
	req.Op = guestfiles.Append
	buffer := make([]byte, inline)
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
			return nil
		}
		offset += int64(n)
		if len(buffer) < pieceSize {
			buffer = make([]byte, pieceSize)
		}
	}
}

// add adds a piece to a draft. A large one is uploaded first, by the service, which need
// not be the user that commands run as.
func (s Store) add(ctx context.Context, instanceID string, req guestfiles.Request) error {
	if len(req.Data) > inline {
		box, err := s.Service.Box(ctx, instanceID)
		if err != nil {
			return err
		}
		data, name := req.Data, scratch(remote.NewName())
		req.Data, req.Upload, req.Length = nil, name, int64(len(data))
		_, err = remote.Again(ctx, retry.Policy{}, s.Service.Worth, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, box.Upload(ctx, name, data)
		})
		if err != nil {
			return s.Service.Explain(ctx, err, "upload a file")
		}
	}
	_, err := s.Do(ctx, instanceID, req)
	return err
}
