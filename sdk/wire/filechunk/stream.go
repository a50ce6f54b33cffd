package filechunk

import (
	"errors"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Stream is either side of a gRPC stream, whose codec is Codec.
type Stream interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// Receive returns a function for NewReader that receives messages of a stream.
func Receive(stream Stream, field protowire.Number) func() (mem.BufferSlice, error) {
	return func() (mem.BufferSlice, error) {
		m := Message{Field: field}
		err := stream.RecvMsg(&m)
		return m.Data, err
	}
}

// SendAll sends what a reader gives until its end; whole is as in Next. A failure
// is that of the reader or that of the stream.
func SendAll(stream Stream, field protowire.Number, from io.Reader, whole bool) (readErr, sendErr error) {
	for sendErr == nil {
		chunk, err := Next(from, whole)
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil:
			return err, nil
		}
		sendErr = stream.SendMsg(&Message{Field: field, Data: chunk})
	}
	return nil, sendErr
}
