package provider

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What programs do against the guest's own limit is in e2e/hostile.
func TestTheHostsMemoryLimitIsTheFenceBehindTheGuests(t *testing.T) {
	onEachRuntime(t, testTheHostsMemoryLimitIsTheFenceBehindTheGuests)
}

func testTheHostsMemoryLimitIsTheFenceBehindTheGuests(t *testing.T, newProvider makeProvider) {
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	p := newProvider(t, map[string]any{"memory_mb": 64, "pool_size": 0, "cgroups": "required"})
	p.settings.MemoryMB = 1 << 20 // the guest believes that there is plenty
	id := create(t, p, templatePython)
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print('before', flush=True)\nx = b'x' * (1 << 30)"})
	assert.NilError(t, err)
	assert.Equal(t, got.Status, sdk.StatusOutOfMemory)
	assert.Equal(t, got.stdout, "before\n")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: ""})
		return poll.Compare(is.ErrorIs(err, &sdk.Error{Code: sdk.CodeNotFound}))
	})
	got, err = execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templatePython), Language: sdk.Python, Code: "print('next')"})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "next\n")
}
