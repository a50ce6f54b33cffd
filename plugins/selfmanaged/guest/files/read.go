package files

import (
	"errors"
	"io"
	"math"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *service) ReadFile(req *providerv1.ReadFileRequest, stream grpc.ServerStreamingServer[providerv1.ReadFileResponse]) error {
	at, err := s.place("path", req.GetPath())
	if err != nil {
		return err
	}
	dir, base, err := at.locate(true)
	if err != nil {
		return err
	}
	defer dir.Close()
	file, info, err := at.openRegular(dir, base)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := stream.Send(&providerv1.ReadFileResponse{Part: &providerv1.ReadFileResponse_File{File: describe(at.String(), info, "")}}); err != nil {
		return err
	}
	offset, length := section(info.size, req.GetOffset(), req.GetLength())
	err = sendChunks(io.NewSectionReader(file, offset, length), func(chunk []byte) error {
		return stream.Send(&providerv1.ReadFileResponse{Part: &providerv1.ReadFileResponse_Data{Data: chunk}})
	})
	return at.explain(err)
}

// section returns which bytes of a file of a size are meant. What it grows by
// while it is read is none of them.
func section(size, offset, length int64) (from, count int64) {
	if offset < 0 {
		offset += size // it cannot overflow: the signs differ
	}
	offset = min(max(offset, 0), size)
	if length <= 0 {
		length = math.MaxInt64
	}
	return offset, min(length, size-offset)
}

// sendChunks sends what a reader gives. gRPC has encoded a message when send
// returns, so one buffer does.
func sendChunks(content io.Reader, send func([]byte) error) error {
	buf := make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(content, buf)
		if n > 0 {
			if err := send(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}
