package validtext_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that is asked for by name
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

func TestATextIsCutBetweenCharacters(t *testing.T) {
	for name, test := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"that is short stays":                       {"short", 5, "short"},
		"is cut at the limit":                       {"too long", 3, "too"},
		"never amid a character":                    {strings.Repeat("a", 199) + "é", 200, strings.Repeat("a", 199)},
		"whatever is no character is shown as such": {"a\xb1\xa8b", 200, "a\uFFFDb"},
		"and is not cut in two either":              {"ab\xb1", 4, "ab"},
		"nor is one that the text ends in":          {"ab\xe2\x82", 200, "ab\uFFFD"},
		"of which nothing is wanted":                {"é", 0, ""},
		"or less than its first character":          {"€uro", 2, ""},
	} {
		t.Run("a text "+name, func(t *testing.T) { assert.Equal(t, validtext.Clip(test.text, test.limit), test.want) })
	}
}

func FuzzClip(f *testing.F) {
	f.Add("a\xb1\xa8b", 3)
	f.Add("€€€\xff", 4)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = min(max(limit, 0), 1<<16)
		got := validtext.Clip(text, limit)
		assert.Assert(t, utf8.ValidString(got))
		assert.Assert(t, len(got) <= limit)
		if utf8.ValidString(text) {
			assert.Assert(t, strings.HasPrefix(text, got))
			assert.Assert(t, len(got) == len(text) || len(got) > limit-utf8.UTFMax, "no more is cut than must be")
		}
	})
}

func ours() encoding.CodecV2 { return validtext.Codec(encoding.GetCodecV2("proto")) }

func TestStringsAreMendedWhereverTheyStand(t *testing.T) {
	const broken, mended = "a\xb1\xa8b", "a\uFFFDb"
	for name, test := range map[string]struct{ sent, want proto.Message }{
		"in a message": {&providerv1.Artifact{Name: broken, MimeType: "text/plain"}, &providerv1.Artifact{Name: mended, MimeType: "text/plain"}},
		"in a choice": {
			&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Artifact{Artifact: &providerv1.Artifact{Name: broken}}},
			&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Artifact{Artifact: &providerv1.Artifact{Name: mended}}},
		},
		"in a list of messages": {
			&providerv1.ListFilesResponse{Files: []*providerv1.FileInfo{{Path: "a"}, {Path: broken, Target: broken}}},
			&providerv1.ListFilesResponse{Files: []*providerv1.FileInfo{{Path: "a"}, {Path: mended, Target: mended}}},
		},
		"in a list": {&providerv1.Command{Argv: []string{"a", broken}}, &providerv1.Command{Argv: []string{"a", mended}}},
		"in a map":  {&providerv1.Instance{Labels: map[string]string{"a": broken, broken: "b"}}, &providerv1.Instance{Labels: map[string]string{"a": mended, mended: "b"}}},
		"in a map of messages": {
			&structpb.Struct{Fields: map[string]*structpb.Value{broken: structpb.NewStringValue(broken)}},
			&structpb.Struct{Fields: map[string]*structpb.Value{mended: structpb.NewStringValue(mended)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := encoding.GetCodecV2("proto").Marshal(test.sent)
			assert.Assert(t, err != nil, "there is nothing to mend")
			encoded, err := ours().Marshal(test.sent)
			assert.NilError(t, err)
			got := test.want.ProtoReflect().New().Interface()
			assert.NilError(t, ours().Unmarshal(encoded, got))
			assert.Assert(t, proto.Equal(got, test.want), "%v", got)
		})
	}
}

func TestTheMessageOfTheSenderStaysAsItWas(t *testing.T) {
	message := &providerv1.Artifact{Name: "\xb1", Data: []byte("\xb1")}
	encoded, err := ours().Marshal(message)
	assert.NilError(t, err)
	assert.Equal(t, message.GetName(), "\xb1")
	var got providerv1.Artifact
	assert.NilError(t, proto.Unmarshal(encoded.Materialize(), &got))
	assert.Equal(t, got.GetName(), "\uFFFD")
	assert.Check(t, is.DeepEqual(got.GetData(), []byte("\xb1")), "bytes are no text")
}

func TestWhatIsNoMessageStillFails(t *testing.T) {
	_, err := ours().Marshal("\xff")
	assert.Assert(t, err != nil)
}

func TestTextIsShownAndNotObeyed(t *testing.T) {
	assert.Equal(t, validtext.Printable("line\n\ttext ü 漢"), "line\n\ttext ü 漢")
	assert.Equal(t, validtext.Printable("\x1b[31m\r\x00\u202e\u0085"), "\uFFFD[31m\uFFFD\uFFFD\uFFFD\uFFFD")
}
