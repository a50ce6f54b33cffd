package validtext

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Codec encodes what inner does, and also a message with strings that are no UTF-8:
// whoever gets it reads U+FFFD in their place. Without it gRPC ends the whole call
// for one such string, and everything that the stream still had to tell is lost.
//
// It is for those who answer. A request whose text has to be mended would ask for
// something else.
func Codec(inner encoding.CodecV2) encoding.CodecV2 { return codec{inner} }

type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(v)
	message, ok := v.(proto.Message)
	if err == nil || !ok {
		return data, err
	}
	// Others may hold the message too, so a copy is mended.
	mended := proto.Clone(message)
	if !mend(mended.ProtoReflect()) {
		return nil, err
	}
	return c.CodecV2.Marshal(mended)
}

// mend makes all strings of a message valid, and says whether one was not.
func mend(m protoreflect.Message) (changed bool) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			changed = mendMap(field, value.Map()) || changed
		case field.IsList():
			changed = mendList(field, value.List()) || changed
		default:
			if mended, was := mendValue(field, value); was {
				m.Set(field, mended)
				changed = true
			} else {
				changed = mendWithin(field, value) || changed
			}
		}
		return true
	})
	return changed
}

func mendList(field protoreflect.FieldDescriptor, list protoreflect.List) (changed bool) {
	for i := range list.Len() {
		if mended, was := mendValue(field, list.Get(i)); was {
			list.Set(i, mended)
			changed = true
		} else {
			changed = mendWithin(field, list.Get(i)) || changed
		}
	}
	return changed
}

func mendMap(field protoreflect.FieldDescriptor, m protoreflect.Map) (changed bool) {
	// Keys that become alike leave one entry, whichever.
	m.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		mended, was := mendValue(field.MapValue(), value)
		if was {
			value = mended
			m.Set(key, value)
			changed = true
		} else {
			changed = mendWithin(field.MapValue(), value) || changed
		}
		if newKey, was := mendValue(field.MapKey(), key.Value()); was {
			m.Clear(key)
			m.Set(newKey.MapKey(), value)
			changed = true
		}
		return true
	})
	return changed
}

// mendValue returns what stands for a string that is no UTF-8.
func mendValue(field protoreflect.FieldDescriptor, value protoreflect.Value) (mended protoreflect.Value, was bool) {
	if field.Kind() != protoreflect.StringKind || utf8.ValidString(value.String()) {
		return value, false
	}
	return protoreflect.ValueOfString(strings.ToValidUTF8(value.String(), "\uFFFD")), true
}

func mendWithin(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
	return field.Message() != nil && !field.IsMap() && mend(value.Message())
}
