package files

import (
	"io/fs"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func errNoHeader() error {
	return sdk.Errorf(sdk.CodeInvalidRequest, "the first message must be the header")
}

func (s *service) WriteFile(stream grpc.ClientStreamingServer[providerv1.WriteFileRequest, providerv1.WriteFileResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	header := first.GetHeader()
	if header == nil {
		return errNoHeader()
	}
	at, err := s.place("path", header.GetPath())
	if err != nil {
		return err
	}
	dir, base, err := at.parent(header.GetMakeParents())
	if err != nil {
		return err
	}
	defer dir.Close()
	d, err := s.newDraft(at, dir)
	defer d.discard()
	if err != nil {
		return err
	}
	content := filechunk.NewReader(filechunk.Receive(stream, filechunk.FieldOfFile))
	// As large as a message, which a single system call writes then.
	if err := d.fill(content, make([]byte, filechunk.Size)); err != nil {
		return err
	}
	if err := d.commit(base, fs.FileMode(header.GetMode()).Perm()); err != nil {
		return err
	}
	info, err := at.lstat(dir, base)
	if err != nil {
		return err
	}
	return stream.SendAndClose(&providerv1.WriteFileResponse{File: info})
}
