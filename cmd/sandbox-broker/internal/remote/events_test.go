package remote

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestWhatHasHappenedInBetween(t *testing.T) {
	type is = struct{ state, detail string }
	at := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	stays, ends, pauses, comes := thing{"instance", "stays"}, thing{"instance", "ends"}, thing{"instance", "pauses"}, thing{"instance", "comes"}
	provider := thing{"provider", "p"}
	before := states{stays: is{"running", "at p"}, ends: is{"running", "at p"}, pauses: is{"running", "at p"}, provider: is{"ready", ""}}
	after := states{stays: is{"running", "at p"}, pauses: is{"paused", "at p"}, comes: is{"running", "at q"}, provider: is{"restarting", "it died"}}
	assert.DeepEqual(t, before.until(after, false, at), []event{
		{at, "instance", "comes", "created", "at q"},
		{at, "instance", "ends", "gone", "at p"},
		{at, "instance", "pauses", "paused", "at p"},
		{at, "provider", "p", "restarting", "it died"},
	})
	assert.DeepEqual(t, states{}.until(states{stays: is{"running", "at p"}}, true, at), []event{{at, "instance", "stays", "running", "at p"}})
}

func TestSizesForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 3 << 50: "3072.0 TiB"} {
		assert.Equal(t, size(n), want)
	}
}
