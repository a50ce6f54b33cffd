package lending_test

import (
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestOutputIsCutBetweenCharacters(t *testing.T) {
	type piece struct {
		Stream sdk.Stream
		Offset int64
		Text   string
	}
	for name, c := range map[string]struct{ in, want []piece }{
		"a character in two pieces": {
			[]piece{{sdk.Stdout, 0, "a\xe2"}, {sdk.Stdout, 2, "\x82\xacb"}},
			[]piece{{sdk.Stdout, 0, "a"}, {sdk.Stdout, 1, "\u20acb"}},
		},
		"a piece that is not a whole character": {
			[]piece{{sdk.Stdout, 0, "\xe2"}, {sdk.Stdout, 1, "\x82"}, {sdk.Stdout, 2, "\xac"}},
			[]piece{{sdk.Stdout, 0, "\u20ac"}},
		},
		"the streams do not mix": {
			[]piece{{sdk.Stdout, 0, "\xe2"}, {sdk.Stderr, 0, "\xc3"}, {sdk.Stdout, 1, "\x82\xac"}, {sdk.Stderr, 1, "\xa9"}},
			[]piece{{sdk.Stdout, 0, "\u20ac"}, {sdk.Stderr, 0, "\u00e9"}},
		},
		"the rest of a character is lost": {
			[]piece{{sdk.Stdout, 0, "a\xe2"}, {sdk.Stdout, 9, "b"}},
			[]piece{{sdk.Stdout, 0, "a"}, {sdk.Stdout, 1, "\xe2"}, {sdk.Stdout, 9, "b"}},
		},
		"the end comes within a character": {
			[]piece{{sdk.Stderr, 5, "\xe2\x82"}},
			[]piece{{sdk.Stderr, 5, "\xe2\x82"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []piece
			cutter := lending.NewRuneCutter(func(p sdk.CommandOutput) error {
				got = append(got, piece{p.Stream, p.Offset, string(p.Data)})
				return nil
			})
			for _, p := range c.in {
				assert.NilError(t, cutter.Take(sdk.CommandOutput{Stream: p.Stream, Offset: p.Offset, Data: []byte(p.Text)}))
			}
			assert.NilError(t, cutter.End())
			assert.DeepEqual(t, got, c.want)
		})
	}
}

// FuzzRuneCutter looks for bytes that do not arrive as they are, and for characters
// that are cut though they were whole.
func FuzzRuneCutter(f *testing.F) {
	f.Add("a\u20acb", uint(2))
	f.Add("\xe2\x82x\xff\U0001f600", uint(1))
	f.Add("\xf0\x9f\x98", uint(3))
	f.Fuzz(func(t *testing.T, text string, piece uint) {
		size, arrived, valid := int(piece%7)+1, "", true
		cutter := lending.NewRuneCutter(func(p sdk.CommandOutput) error {
			assert.Equal(t, p.Offset, int64(len(arrived)))
			assert.Assert(t, len(p.Data) > 0)
			arrived += string(p.Data)
			valid = valid && utf8.Valid(p.Data)
			return nil
		})
		for i := 0; i < len(text); i += size {
			assert.NilError(t, cutter.Take(sdk.CommandOutput{Stream: sdk.Stdout, Offset: int64(i), Data: []byte(text[i:min(i+size, len(text))])}))
		}
		assert.NilError(t, cutter.End())
		assert.Equal(t, arrived, text)
		assert.Equal(t, valid, utf8.ValidString(text))
	})
}
