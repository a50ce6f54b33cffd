package wire

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protov2 "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// maxMessageFields is how many fields, on all levels together, a message from
	// a plugin may have: 10,000 instances with a dozen labels each.
	maxMessageFields = 200_000
	// maxMessageDepth is how deep messages may stand in each other.
	maxMessageDepth = 50
)

var errTooManyFields = errors.New("the message has too many fields")

// boundedCodec is gRPC's own codec with a look at each message before it is
// decoded. A field that takes two bytes on the wire can take some hundred in
// memory, so the size of a message alone bounds nothing.
type boundedCodec struct{ encoding.CodecV2 }

func newBoundedCodec() boundedCodec { return boundedCodec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c boundedCodec) Unmarshal(data mem.BufferSlice, into any) error {
	if m, ok := into.(protov2.Message); ok {
		whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer whole.Free()
		left := maxMessageFields
		if err := countFields(whole.ReadOnlyData(), m.ProtoReflect().Descriptor(), &left, 0); err != nil {
			return err
		}
		data = mem.BufferSlice{whole} // put together once
	}
	return c.CodecV2.Unmarshal(data, into)
}

// countFields subtracts the fields of an encoded message from left. What is not
// well encoded is left for the decoder to refuse.
func countFields(b []byte, message protoreflect.MessageDescriptor, left *int, depth int) error {
	if depth > maxMessageDepth {
		return fmt.Errorf("the message is nested deeper than %d levels", maxMessageDepth)
	}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if *left--; *left < 0 {
			return errTooManyFields
		}
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return nil
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if field := message.Fields().ByNumber(number); field != nil && field.Message() != nil {
			if err := countFields(value, field.Message(), left, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
