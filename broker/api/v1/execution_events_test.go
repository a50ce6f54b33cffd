package v1

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// FuzzOutput looks for bytes that do not arrive as they are, and for characters
// that are cut though they were whole.
func FuzzOutput(f *testing.F) {
	f.Add("a\u20acb", uint(2))
	f.Add("\xe2\x82x\xff\U0001f600", uint(1))
	f.Add("\xf0\x9f\x98", uint(3))
	f.Fuzz(func(t *testing.T, text string, piece uint) {
		size := int(piece%7) + 1
		w := httptest.NewRecorder()
		stream := rest.NewEventStream(w)
		defer stream.Close()
		l := &told{to: stream}
		for left := text; left != ""; left = left[min(size, len(left)):] {
			assert.NilError(t, l.Stdout(context.Background(), []byte(left[:min(size, len(left))])))
		}
		assert.NilError(t, l.rest(context.Background(), false))
		var arrived []byte
		exact := false
		for r := sse.NewReader(w.Body, 1<<20); ; {
			e, err := r.Next()
			if err != nil {
				break
			}
			var part client.OutputPart
			assert.NilError(t, json.Unmarshal(e.Data, &part))
			exact = exact || part.Base64 != nil
			arrived = append(append(arrived, part.Text...), part.Base64...)
		}
		assert.Equal(t, string(arrived), text)
		assert.Equal(t, exact, strings.ToValidUTF8(text, "?") != text)
	})
}
