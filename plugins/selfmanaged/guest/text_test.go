package guest

import (
	"strings"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"gotest.tools/v3/assert"
)

// Every message that the guest can send, with every string of it broken: what it
// fills from the sandbox's world is whatever a program made of it.
func TestNoAnswerFailsForItsStrings(t *testing.T) {
	answers := answerCodec()
	messages := 0
	protoregistry.GlobalTypes.RangeMessages(func(kind protoreflect.MessageType) bool {
		if !strings.HasPrefix(string(kind.Descriptor().FullName()), "sandboxbroker.") || kind.Descriptor().IsMapEntry() {
			return true
		}
		messages++
		for _, text := range []string{"\xff", "a\xb1\xa8b"} {
			broken := kind.New()
			set := fill(broken, text, 3)
			before := broken.Interface()
			_, err := encoding.GetCodecV2("proto").Marshal(before)
			assert.Equal(t, err != nil, set > 0, "%s", kind.Descriptor().FullName())
			encoded, err := answers.Marshal(before)
			assert.NilError(t, err, "%s", kind.Descriptor().FullName())
			after := kind.New().Interface()
			assert.NilError(t, answers.Unmarshal(encoded, after))
			assert.Equal(t, count(after.ProtoReflect(), "\uFFFD"), count(before.ProtoReflect(), text), "%s", kind.Descriptor().FullName())
		}
		return true
	})
	assert.Assert(t, messages > 50, "%d", messages)
}

// fill sets every string of a message, in those within it too down to some depth,
// and says how many. A oneof ends with its last.
func fill(m protoreflect.Message, text string, depth int) (set int) {
	if depth == 0 {
		return 0
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch field := fields.Get(i); {
		case field.IsMap():
			value := protoreflect.ValueOfString(text)
			if field.MapValue().Message() != nil {
				value = m.Mutable(field).Map().NewValue()
				set += fill(value.Message(), text, depth-1)
			}
			if field.MapValue().Kind() == protoreflect.StringKind || field.MapValue().Message() != nil {
				m.Mutable(field).Map().Set(protoreflect.ValueOfString(text).MapKey(), value)
				set++
			}
		case field.Kind() == protoreflect.StringKind && field.IsList():
			m.Mutable(field).List().Append(protoreflect.ValueOfString(text))
			set++
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(text))
			set++
		case field.Message() != nil && field.IsList():
			set += fill(m.Mutable(field).List().AppendMutable().Message(), text, depth-1)
		case field.Message() != nil:
			set += fill(m.Mutable(field).Message(), text, depth-1)
		}
	}
	return set
}

// count says how many strings of a message hold a text.
func count(m protoreflect.Message, text string) (n int) {
	one := func(field protoreflect.FieldDescriptor, value protoreflect.Value) {
		switch {
		case field.Kind() == protoreflect.StringKind && strings.Contains(value.String(), text):
			n++
		case field.Message() != nil:
			n += count(value.Message(), text)
		}
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				one(field.MapKey(), key.Value())
				one(field.MapValue(), value)
				return true
			})
		case field.IsList():
			for i := range value.List().Len() {
				one(field, value.List().Get(i))
			}
		default:
			one(field, value)
		}
		return true
	})
	return n
}
