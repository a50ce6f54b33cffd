package soak_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// The time from a save to the first request that sees it is reported; that it comes
// to that is what is tested.
func TestATenantIsSoonInForce(t *testing.T) {
	b, w, first := startBroker(t)
	before := head(t, b)
	next := first
	next.logLevel = "error"
	saved := 0
	measure := func(when string) {
		times := make([]time.Duration, 0, *saves)
		for range *saves {
			saved++
			next.token = fmt.Sprint("token-", saved)
			began := time.Now()
			saveByRename(t, b, before+w.text(next))
			awaitToken(t, b, next.token)
			times = append(times, time.Since(began))
		}
		if len(times) == 0 {
			return
		}
		slices.Sort(times)
		t.Logf("from save to force, %s: p50 %s, p99 %s, longest %s, of %d; load of the machine %s", when,
			quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1), len(times), loadAverage(t))
	}
	measure("idle")
	load := startClients(t, b)
	measure(fmt.Sprintf("%d clients", mockClients+realClients))
	load.stop()
	assert.Equal(t, load.failed.Load(), int64(0))
}

func awaitToken(t *testing.T, b *harness.Broker, token string) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		in, err := works(b, token)
		if err != nil {
			return poll.Error(err)
		}
		if !in {
			return poll.Continue("%s is not known yet\n%s", token, tail(b.Log()))
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(time.Millisecond))
}

// quantile of sorted times, in tenths of a millisecond.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Round(100 * time.Microsecond)
}

// loadAverage is that of the last minute.
func loadAverage(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	assert.NilError(t, err)
	return strings.Fields(string(text))[0]
}
