package files

import (
	"io"
	"math"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
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
	readErr, sendErr := filechunk.SendAll(stream, filechunk.FieldOfFile, io.NewSectionReader(file, offset, length), true)
	if readErr != nil {
		return at.explain(readErr)
	}
	return sendErr
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
