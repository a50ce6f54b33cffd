package provider

import (
	"fmt"
	"io"
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
	return fmt.Sprintf("import time\nx = b'x' * (%d << 20)\ntime.sleep(1000)", p.sandboxes.limits.MemoryMB+64)
}

// besideItsFence makes an instance of which only the limit on the host keeps the
// memory: its guest believes that there is plenty.
func besideItsFence(t *testing.T, newProvider makeProvider) (testProvider, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	p := newProvider(t, map[string]any{"memory_mb": 64, "pool_size": 0, "cgroups": "required"})
	p.sandboxes.limits.MemoryMB = 1 << 20
	return p, create(t, p, templatePython)
}

// eater is Python that says so when it runs, and takes a gigabyte when a file is
// there that is named go.
const eater = `
import os, time
print('before', flush=True)
while not os.path.exists('/workspace/go'): time.sleep(0.01)
x = b'x' * (1 << 30)`

func letItEat(t *testing.T, p testProvider, id string) {
	t.Helper()
	_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: "/workspace/go"}, strings.NewReader(""))
	assert.NilError(t, err)
}

// What programs do against the guest's own limit is in e2e/hostile.
func TestTheHostsMemoryLimitIsTheFenceBehindTheGuests(t *testing.T) {
	onEachRuntime(t, testTheHostsMemoryLimitIsTheFenceBehindTheGuests)
}

func testTheHostsMemoryLimitIsTheFenceBehindTheGuests(t *testing.T, newProvider makeProvider) {
	p, id := besideItsFence(t, newProvider)
	// What was not on its way yet is lost with the sandbox, so it is waited for.
	said, ended := newAnnouncer(), make(chan sdk.ExecuteResult, 1)
	go func() {
		result, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Timeout: time.Minute, OutputLimit: 1 << 20, Code: eater}, said)
		assert.Check(t, err)
		ended <- result
	}()
	<-said.written
	letItEat(t, p, id)
	assert.Equal(t, (<-ended).Status, sdk.StatusOutOfMemory)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: ""})
		return poll.Compare(is.ErrorIs(err, &sdk.Error{Code: sdk.CodeNotFound}))
	}, poll.WithTimeout(2*time.Minute))
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templatePython), Language: sdk.Python, Code: "print('next')"})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "next\n")
}

func TestWhateverTheFenceEndsIsToldSo(t *testing.T) {
	onEachRuntime(t, testWhateverTheFenceEndsIsToldSo)
}

func testWhateverTheFenceEndsIsToldSo(t *testing.T, newProvider makeProvider) {
	p, id := besideItsFence(t, newProvider)
	_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "head -c 32M /dev/zero > /tmp/file"})
	assert.NilError(t, err)
	_, content, err := p.ReadFile(t.Context(), sdk.ReadFileRequest{InstanceID: id, Path: "/tmp/file"})
	assert.NilError(t, err)
	defer func() { assert.Check(t, content.Close()) }()
	begun, failed := make(chan struct{}), make(chan error)
	calls := []func() error{
		func() error { // a command
			c, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"python3", "-c", eater}, KeepOutput: 1 << 20})
			if err != nil {
				return err
			}
			_, err = p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: c.ID, Follow: true}, func(sdk.CommandOutput) error {
				begun <- struct{}{}
				return nil
			})
			return err
		},
		func() error { // a watch of files
			return p.WatchFiles(t.Context(), sdk.WatchFilesRequest{InstanceID: id, Path: "/tmp"}, func() error {
				begun <- struct{}{}
				return nil
			}, func([]sdk.FileChange) error { return nil })
		},
	}
	for _, call := range calls {
		go func() { failed <- call() }()
	}
	for range calls {
		<-begun
	}
	letItEat(t, p, id)
	toldSo := func(err error) {
		t.Helper()
		assert.Check(t, is.ErrorIs(err, &sdk.Error{Code: sdk.CodeUnavailable}))
		assert.Check(t, is.ErrorContains(err, "took more memory than it has"))
	}
	for range calls {
		toldSo(<-failed)
	}
	_, err = io.Copy(io.Discard, content) // of which most was still in the sandbox
	toldSo(err)
}
