package files

import (
	"errors"
	"io"
	"io/fs"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/refusal"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func errNoHeader() error {
	return refusal.New(refusal.InvalidRequest, "", "the first message must be the header")
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
	err = receive(func() ([]byte, error) {
		m, err := stream.Recv()
		return m.GetData(), err
	}, d)
	if err != nil {
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

// receive writes what comes in messages, until the sender has ended it in order.
func receive(next func() ([]byte, error), to io.Writer) error {
	for {
		chunk, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if _, err := to.Write(chunk); err != nil {
			return err
		}
	}
}

// received is a stream of messages as a reader. It ends with io.EOF only where
// the sender ended it in order.
type received struct {
	next func() ([]byte, error)
	rest []byte
	err  error
}

func (r *received) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.rest, r.err = r.next()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
