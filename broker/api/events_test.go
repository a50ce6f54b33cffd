package api

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/sse"
)

// This test is inside the package: it has a clock of its own.
func TestSilenceIsBrokenByComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		s := newEventStream(w)
		written := func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			text := w.Body.String()
			w.Body.Reset()
			return text
		}
		time.Sleep(time.Hour) // of the bubble's clock
		assert.Equal(t, written(), "", "nothing comes before the first event: it may be a problem yet")

		assert.NilError(t, s.send(t.Context(), "a", 1))
		assert.Equal(t, written(), "event: a\ndata: 1\n\n")
		time.Sleep(heartbeat - 1)
		assert.Equal(t, written(), "")
		assert.NilError(t, s.send(t.Context(), "b", 2))
		time.Sleep(heartbeat - 1)
		assert.Equal(t, written(), "event: b\ndata: 2\n\n")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, written(), ": ping\n\n")
		time.Sleep(3 * heartbeat)
		synctest.Wait()
		assert.Equal(t, written(), ": ping\n\n: ping\n\n: ping\n\n")

		s.close()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, written(), "")
	})
}

// FuzzOutput looks for bytes that do not arrive as they are, and for characters
// that are cut though they were whole.
func FuzzOutput(f *testing.F) {
	f.Add("a\u20acb", uint(2))
	f.Add("\xe2\x82x\xff\U0001f600", uint(1))
	f.Add("\xf0\x9f\x98", uint(3))
	f.Fuzz(func(t *testing.T, text string, piece uint) {
		size := int(piece%7) + 1
		w := httptest.NewRecorder()
		l := &eventListener{stream: newEventStream(w)}
		defer l.stream.close()
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			assert.NilError(t, l.Stdout(context.Background(), []byte(rest[:min(size, len(rest))])))
		}
		assert.NilError(t, l.end(context.Background(), false))
		var arrived []byte
		exact := false
		for r := sse.NewReader(w.Body, 1<<20); ; {
			e, err := r.Next()
			if err != nil {
				break
			}
			var part OutputPart
			assert.NilError(t, json.Unmarshal(e.Data, &part))
			exact = exact || part.Base64 != nil
			arrived = append(append(arrived, part.Text...), part.Base64...)
		}
		assert.Equal(t, string(arrived), text)
		assert.Equal(t, exact, strings.ToValidUTF8(text, "?") != text)
	})
}
