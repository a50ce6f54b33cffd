package e2b

import (
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/e2b/envdv1"
)

// Code in a sandbox decides how long names are, and a client may never ask for its changes.
func TestChangesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	event := &envdv1.FilesystemEvent{Name: strings.Repeat("n", 12<<10)}
	fill := func(w *watchers, one *watcher) (events int) {
		for events = range maxWatcherEvents + 1 {
			if err := w.note(one, event); err != nil {
				told, ok := errors.AsType[lending.Unheard](err)
				assert.Assert(t, ok)
				assert.Equal(t, connect.CodeOf(connectError(told.Err)), connect.CodeDataLoss)
				break
			}
		}
		return events
	}
	add := func(w *watchers, id, tenant, sandbox string) *watcher {
		one, err := w.add(id, tenant, sandbox, func() {})
		assert.NilError(t, err)
		return one
	}
	var w watchers
	one := add(&w, "1", "acme", "s")
	of := fill(&w, one)
	assert.Assert(t, of > 50 && of*12<<10 <= maxWatcherBytes, "%d", of)
	taken, err := w.take("1", "s")
	assert.NilError(t, err)
	assert.Equal(t, len(taken), of)
	assert.Equal(t, fill(&w, one), of, "what was taken makes room")

	// All watchers of a tenant have a bound too, and another tenant's room is its own.
	total := of
	for n := range 31 {
		total += fill(&w, add(&w, string(rune('A'+n)), "acme", "t"))
	}
	assert.Assert(t, total*12<<10 <= maxTenantBytes, "%d", total)
	assert.Equal(t, fill(&w, add(&w, "2", "other", "u")), of)

	// What is removed gives its room back, and keeps nothing that comes later.
	for id := range w.all {
		assert.Check(t, w.remove(id, w.all[id].sandbox))
	}
	assert.Equal(t, len(w.bytes), 0)
	assert.Check(t, w.note(one, event) != nil)
	assert.Equal(t, len(w.bytes), 0)
}
