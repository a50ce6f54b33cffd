package chaos_test

import (
	"testing"
	"time"
)

// disturbance is what happens to a stop in order once it has begun.
type disturbance int

const (
	undisturbed disturbance = iota
	pluginKilled
	brokerKilled
	disturbances
)

// TestStopsInOrderKeepWhatTheCloudHas stops the broker under load, with on_stop =
// "keep", again and again; some stops are cut short. What was acknowledged has to be
// there after each start, as if the broker had not stopped.
func TestStopsInOrderKeepWhatTheCloudHas(t *testing.T) {
	t.Parallel()
	s := seed(t)
	w := newWorld(t, s, options{keeps: true})
	w.start("")
	w.waitReady()
	random := newRandom(s, 1)
	for kind := range disturbances {
		clients := w.letLoose()
		for range 4 {
			pause(t.Context(), time.Duration(200+random.IntN(300))*time.Millisecond)
			w.askToStop()
			early := time.Duration(random.IntN(40)) * time.Millisecond
			switch kind {
			case undisturbed:
				w.awaitStop()
			case pluginKilled:
				pause(t.Context(), early)
				w.killPlugin("")
				w.awaitStop()
			case brokerKilled:
				pause(t.Context(), early)
				w.kill()
			}
			w.start("")
			w.waitReady()
		}
		clients.end()
		w.restart() // and so there is a reconciliation
		w.settle()
		w.check()
		if t.Failed() {
			return
		}
	}
	t.Logf("%+v", w.check())
}
