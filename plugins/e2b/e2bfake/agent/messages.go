package agent

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// requests are the messages that envd takes, each a list of its fields: the name, the
// number, and the type. [] stands before the type of a list, {} of a map from text, ? of
// what may be absent, and | of the alternatives of which one is set.
var requests = map[string]string{
	"ProcessConfig":     "cmd 1 string, args 2 []string, envs 3 {}string, cwd 4 ?string",
	"Size":              "cols 1 uint32, rows 2 uint32",
	"PTY":               "size 1 Size",
	"ProcessSelector":   "pid 1 |uint32, tag 2 |string",
	"ProcessInput":      "stdin 1 |bytes, pty 2 |bytes",
	"ListRequest":       "",
	"StartRequest":      "process 1 ProcessConfig, pty 2 PTY, tag 3 ?string, stdin 4 ?bool",
	"ConnectRequest":    "process 1 ProcessSelector",
	"UpdateRequest":     "process 1 ProcessSelector, pty 2 PTY",
	"SendInputRequest":  "process 1 ProcessSelector, input 2 ProcessInput",
	"SendSignalRequest": "process 1 ProcessSelector, signal 2 Signal",
	"CloseStdinRequest": "process 1 ProcessSelector",
	"PathRequest":       "path 1 string",
	"ListDirRequest":    "path 1 string, depth 2 uint32",
	"MoveRequest":       "source 1 string, destination 2 string",
	"WatchDirRequest":   "path 1 string, recursive 2 bool, include_entry 3 bool, allow_network_mounts 4 bool",
}

var signals = map[string]int32{"SIGNAL_UNSPECIFIED": 0, "SIGNAL_SIGKILL": 9, "SIGNAL_SIGTERM": 15}

// needed are the fields that a message must have, by its name. proto3 cannot say that:
// what is absent is zero, which the original refuses later, or takes for something else
// than was meant.
var needed = map[string][]string{
	"ProcessConfig": {"cmd"}, "Size": {"cols", "rows"}, "PTY": {"size"}, "StartRequest": {"process"}, "ConnectRequest": {"process"},
	"UpdateRequest": {"process", "pty"}, "SendInputRequest": {"process", "input"}, "SendSignalRequest": {"process", "signal"},
	"CloseStdinRequest": {"process"}, "PathRequest": {"path"}, "ListDirRequest": {"path"}, "MoveRequest": {"source", "destination"}, "WatchDirRequest": {"path"},
}

// maxSize of a terminal: its kernel keeps 16 bits.
const maxSize = 1<<16 - 1

var descriptors = sync.OnceValues(func() (protoreflect.FileDescriptor, error) {
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("envd.proto"), Package: proto.String("envd"), Syntax: proto.String("proto3")}
	signal := &descriptorpb.EnumDescriptorProto{Name: proto.String("Signal")}
	for _, name := range []string{"SIGNAL_UNSPECIFIED", "SIGNAL_SIGKILL", "SIGNAL_SIGTERM"} { // zero comes first
		signal.Value = append(signal.Value, &descriptorpb.EnumValueDescriptorProto{Name: &name, Number: proto.Int32(signals[name])})
	}
	file.EnumType = append(file.EnumType, signal)
	for name, fields := range requests {
		message, err := describeMessage(name, fields)
		if err != nil {
			return nil, err
		}
		file.MessageType = append(file.MessageType, message)
	}
	return protodesc.NewFile(file, nil)
})

var scalars = map[string]descriptorpb.FieldDescriptorProto_Type{
	"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	"uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32, "bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL,
}

func describeMessage(name, fields string) (*descriptorpb.DescriptorProto, error) {
	message := &descriptorpb.DescriptorProto{Name: &name}
	if fields == "" {
		return message, nil
	}
	var alternatives, absent []*descriptorpb.FieldDescriptorProto
	for text := range strings.SplitSeq(fields, ", ") {
		var field, kind string
		var number int32
		if _, err := fmt.Sscan(text, &field, &number, &kind); err != nil {
			return nil, fmt.Errorf("field %q of %s: %w", text, name, err)
		}
		bare := strings.TrimLeft(kind, "[]{}?|")
		f := describeField(field, number, bare)
		switch kind[:len(kind)-len(bare)] {
		case "[]":
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		case "{}":
			entry := strings.ToUpper(field[:1]) + field[1:] + "Entry"
			message.NestedType = append(message.NestedType, &descriptorpb.DescriptorProto{
				Name: &entry, Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
				Field: []*descriptorpb.FieldDescriptorProto{describeField("key", 1, "string"), describeField("value", 2, bare)},
			})
			f = describeField(field, number, name+"."+entry)
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		case "?":
			f.Proto3Optional = proto.Bool(true)
			absent = append(absent, f)
		case "|":
			alternatives = append(alternatives, f)
		}
		message.Field = append(message.Field, f)
	}
	if len(alternatives) > 0 {
		message.OneofDecl = append(message.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("one")})
	}
	for _, f := range alternatives {
		f.OneofIndex = proto.Int32(0)
	}
	for _, f := range absent { // each is alone in a oneof, behind those that were declared
		f.OneofIndex = proto.Int32(int32(len(message.OneofDecl)))
		message.OneofDecl = append(message.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("_" + f.GetName())})
	}
	return message, nil
}

func describeField(name string, number int32, kind string) *descriptorpb.FieldDescriptorProto {
	f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	if scalar, ok := scalars[kind]; ok {
		f.Type = scalar.Enum()
		return f
	}
	f.TypeName = proto.String(".envd." + kind)
	f.Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
	if kind == "Signal" {
		f.Type = descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum()
	}
	return f
}

// checkMessage compares the JSON of a request with its message. Fields that are not
// known are refused, though the original is not known to mind.
func checkMessage(name string, text []byte) error {
	file, err := descriptors()
	if err != nil {
		return err
	}
	descriptor := file.Messages().ByName(protoreflect.Name(name))
	if descriptor == nil {
		return fmt.Errorf("no message is called %s", name)
	}
	message := dynamicpb.NewMessage(descriptor)
	if err := protojson.Unmarshal(text, message); err != nil {
		return rpcErrorf("invalid_argument", "validation error: "+err.Error())
	}
	if problem := incomplete(message, ""); problem != "" {
		return rpcErrorf("invalid_argument", "validation error: "+problem)
	}
	return nil
}

// incomplete says what a message, or one in it, lacks.
func incomplete(message protoreflect.Message, at string) (problem string) {
	descriptor := message.Descriptor()
	for _, name := range needed[string(descriptor.Name())] {
		if !message.Has(descriptor.Fields().ByName(protoreflect.Name(name))) {
			return at + name + " is required"
		}
	}
	for i := range descriptor.Oneofs().Len() {
		if one := descriptor.Oneofs().Get(i); !one.IsSynthetic() && message.WhichOneof(one) == nil {
			return strings.TrimSuffix(at, ".") + " must say which"
		}
	}
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() != nil && !field.IsMap():
			problem = incomplete(value.Message(), at+string(field.Name())+".")
		case descriptor.Name() == "Size" && value.Uint() > maxSize:
			problem = fmt.Sprintf("%s%s must be at most %d", at, field.Name(), maxSize)
		case descriptor.Name() == "ProcessSelector" && (value.Interface() == "" || value.Interface() == uint32(0)):
			problem = at + string(field.Name()) + " must not be empty"
		case field.Enum() != nil && field.Enum().Values().ByNumber(value.Enum()) == nil:
			problem = at + string(field.Name()) + " has no such value"
		}
		return problem == ""
	})
	return problem
}
