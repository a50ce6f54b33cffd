package filechunk

import (
	"errors"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // what everything else is encoded with
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Message stands for a message of which only a field of bytes matters. Streams
// that use Codec send and receive it in the message's place.
type Message struct {
	// Field is the number of the field.
	Field protowire.Number
	// Data is what it holds. Whoever sends it gives it away, whoever receives it
	// frees it.
	Data mem.BufferSlice
}

// The fields of bytes in the messages that carry files.
const (
	FieldOfFile         protowire.Number = 2 // ReadFileResponse, WriteFileRequest
	FieldOfReadArchive  protowire.Number = 1 // ReadArchiveResponse
	FieldOfWriteArchive protowire.Number = 2 // WriteArchiveRequest
)

// Codec encodes a *Message without copying its data, and every other message as
// gRPC does.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	head := protowire.AppendTag(nil, m.Field, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(m.Data.Len()))
	return append(mem.BufferSlice{mem.SliceBuffer(head)}, m.Data...), nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if head := m.headOf(data); head > 0 {
		m.Data = behind(data, head)
		return nil
	}
	return m.search(data.Materialize())
}

// maxHead is how long the tag and the length of a field can be.
const maxHead = 2 * 10

// headOf returns how long the head of a message is that is nothing but the field,
// or 0 for another message.
func (m *Message) headOf(data mem.BufferSlice) int {
	var start [maxHead]byte
	begin := start[:data.CopyTo(start[:])]
	field, wireType, tag := protowire.ConsumeTag(begin)
	if tag < 0 || field != m.Field || wireType != protowire.BytesType {
		return 0
	}
	length, size := protowire.ConsumeVarint(begin[tag:])
	if size < 0 || length != uint64(data.Len()-tag-size) {
		return 0
	}
	return tag + size
}

// behind returns data without its first bytes, with references of its own.
func behind(data mem.BufferSlice, skip int) mem.BufferSlice {
	rest := make(mem.BufferSlice, 0, len(data))
	for _, buffer := range data {
		if n := buffer.Len(); skip >= n {
			skip -= n
			continue
		}
		rest = append(rest, buffer.Slice(skip, buffer.Len()))
		skip = 0
	}
	return rest
}

// search finds the field in a message that has others too. As everywhere, the last
// one counts.
func (m *Message) search(message []byte) error {
	m.Data = nil
	for len(message) > 0 {
		field, wireType, tag := protowire.ConsumeTag(message)
		if tag < 0 || !field.IsValid() {
			return errMalformed
		}
		size := protowire.ConsumeFieldValue(field, wireType, message[tag:])
		if size < 0 {
			return errMalformed
		}
		if field == m.Field && wireType == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[tag:])
			m.Data = mem.BufferSlice{mem.SliceBuffer(value)}
		}
		message = message[tag+size:]
	}
	return nil
}

var errMalformed = errors.New("the message is malformed")
