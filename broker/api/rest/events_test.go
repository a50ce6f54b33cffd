package rest

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// This test is inside the package: it has a clock of its own.
func TestSilenceIsBrokenByComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		s := NewEventStream(w)
		written := func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			text := w.Body.String()
			w.Body.Reset()
			return text
		}
		time.Sleep(time.Hour) // of the bubble's clock
		assert.Equal(t, written(), "", "nothing comes before the first event: it may be a problem yet")

		assert.NilError(t, s.Send(t.Context(), "a", 1))
		assert.Equal(t, written(), "event: a\ndata: 1\n\n")
		time.Sleep(heartbeat - 1)
		assert.Equal(t, written(), "")
		assert.NilError(t, s.Send(t.Context(), "b", 2))
		time.Sleep(heartbeat - 1)
		assert.Equal(t, written(), "event: b\ndata: 2\n\n")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, written(), ": ping\n\n")
		time.Sleep(3 * heartbeat)
		synctest.Wait()
		assert.Equal(t, written(), ": ping\n\n: ping\n\n: ping\n\n")

		s.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, written(), "")
	})
}
