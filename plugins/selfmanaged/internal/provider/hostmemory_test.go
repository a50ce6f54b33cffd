package provider

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// overrun is Python that takes more memory than the programs of a sandbox may, but
// never as much as its fence on the host allows, and holds it. So the guest finds it
// whenever it gets to look; who takes without bound may reach the fence before,
// which ends the whole sandbox.
func overrun(p testProvider) string {
	return fmt.Sprintf("import time\nx = b'x' * (%d << 20)\ntime.sleep(1000)", p.settings.MemoryMB+64)
}

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
	// What was not on its way yet is lost with the sandbox, so it is waited for.
	said, ended := newAnnouncer(), make(chan sdk.ExecuteResult, 1)
	go func() {
		result, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Timeout: time.Minute, OutputLimit: 1 << 20, Code: `
import os, time
print('before', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
x = b'x' * (1 << 30)`}, said)
		assert.Check(t, err)
		ended <- result
	}()
	<-said.written
	_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: "go"}, strings.NewReader(""))
	assert.NilError(t, err)
	assert.Equal(t, (<-ended).Status, sdk.StatusOutOfMemory)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: ""})
		return poll.Compare(is.ErrorIs(err, &sdk.Error{Code: sdk.CodeNotFound}))
	})
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templatePython), Language: sdk.Python, Code: "print('next')"})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "next\n")
}
