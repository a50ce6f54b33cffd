package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// replacePlugin puts another version of a plugin in the place of the one that
// runs, as an installation does: by a rename.
func replacePlugin(t *testing.T, b *harness.Broker, name string, content []byte) {
	t.Helper()
	path := filepath.Join(b.Dir, "bin", "plugins", name)
	assert.NilError(t, os.WriteFile(path+".new", content, 0o755))
	assert.NilError(t, os.Rename(path+".new", path))
}

// another is the plugin's program with something behind it: another file that
// does the same.
func another(t *testing.T, b *harness.Broker, name string) []byte {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(b.Dir, "bin", "plugins", name))
	assert.NilError(t, err)
	return append(program, "another version"...)
}

// plugins are the processes of a plugin: those of the file that is installed, and
// those of files that were.
func plugins(t *testing.T, b *harness.Broker, name string) (now, before []int) {
	t.Helper()
	for _, p := range harness.Plugins(t, b.PID) {
		switch filepath.Base(p.Executable) {
		case name:
			now = append(now, p.PID)
		case name + " (deleted)":
			before = append(before, p.PID)
		}
	}
	return now, before
}

// awaitPlugins waits until one process of the plugin is there, and so many of the
// one before.
func awaitPlugins(t *testing.T, b *harness.Broker, name string, before int) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		gotNow, gotBefore := plugins(t, b, name)
		if len(gotNow) == 1 && len(gotBefore) == before {
			return poll.Success()
		}
		return poll.Continue("%d processes of the plugin and %d of the one before\n%s", len(gotNow), len(gotBefore), b.Log())
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(50*time.Millisecond))
}

// awaitTakeover waits until a new process of the provider has taken over.
func awaitTakeover(t *testing.T, b *harness.Broker, name string) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if !strings.Contains(b.Log(), "a new process of the provider has taken over: provider="+name) {
			return poll.Continue("not yet\n%s", b.Log())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(50*time.Millisecond))
}

// A plugin is replaced under load: no request fails, sessions stay, and the old
// process ends with the last of its instances.
func TestAPluginIsUpgradedInPlace(t *testing.T) {
	t.Parallel()
	b := startReal(t, "")
	b.Execute(t, map[string]any{"language": "python", "code": "open('kept', 'w').write('kept')", "session_id": "before"})

	stop := make(chan struct{})
	var load sync.WaitGroup
	var done atomic.Int64
	for i := range 3 {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				want := fmt.Sprintf("%d-%d", i, n)
				request := map[string]any{"language": "bash", "code": "echo " + want, "timeout": 60}
				if i == 0 {
					request["session_id"] = fmt.Sprint("s", n/5) // some live on for a while
				}
				answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request)
				if !assert.Check(t, is.Equal(answer.Status, http.StatusOK), "%s %v", answer.Body, answer.Err) {
					return
				}
				var e harness.Execution
				answer.Into(t, &e)
				if !assert.Check(t, is.Equal(e.Stdout, want+"\n"), "%s", answer.Body) {
					return
				}
				done.Add(1)
			}
		})
	}
	replacePlugin(t, b, "self_managed", another(t, b, "self_managed"))
	awaitTakeover(t, b, "self_managed")
	after := done.Load()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if done.Load() < after+10 {
			return poll.Continue("%d executions since", done.Load()-after)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	close(stop)
	load.Wait()

	e := b.Execute(t, map[string]any{"language": "python", "code": "print(open('kept').read())", "session_id": "before"})
	assert.Equal(t, e.Stdout, "kept\n", "the session has its instance still")
	awaitPlugins(t, b, "self_managed", 1)
	destroyAll(t, b)
	awaitPlugins(t, b, "self_managed", 0)
	// Its directory goes after it.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		left, err := filepath.Glob(filepath.Join(b.Dir, "state", "providers", "self_managed", "[0-9]*"))
		assert.NilError(t, err)
		if len(left) == 1 && filepath.Base(left[0]) == "2" {
			return poll.Success()
		}
		return poll.Continue("%v", left)
	}, poll.WithTimeout(2*time.Minute))
}

// destroyAll destroys the tenant's instances.
func destroyAll(t *testing.T, b *harness.Broker) {
	t.Helper()
	for {
		var list struct {
			Instances []struct {
				ID string `json:"id"`
			} `json:"instances"`
		}
		b.Do(http.MethodGet, "/api/v1/instances", harness.Token, nil).Into(t, &list)
		if len(list.Instances) == 0 {
			return
		}
		for _, i := range list.Instances {
			answer := b.Do(http.MethodDelete, "/api/v1/instances/"+i.ID, harness.Token, nil)
			assert.Equal(t, answer.Status, http.StatusNoContent, "%s", answer.Body)
		}
	}
}

func TestAPluginThatDoesNotWorkReplacesNothing(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startMock(t, "")
	works := map[string]any{"language": "mock", "code": `{"stdout": "works"}`}
	before := b.Plugin("mock")
	good := another(t, b, "mock")

	replacePlugin(t, b, "mock", []byte("#!/bin/sh\nexit 7\n"))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if !strings.Contains(b.Log(), "goes on with the plugin that it has: provider=mock") {
			return poll.Continue("not tried yet\n%s", b.Log())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, b.Execute(t, works).Stdout, "works")
	_, old := plugins(t, b, "mock")
	assert.DeepEqual(t, old, []int{before})

	replacePlugin(t, b, "mock", good)
	awaitTakeover(t, b, "mock")
	awaitPlugins(t, b, "mock", 0)
	assert.Equal(t, b.Execute(t, works).Stdout, "works")
}

func TestADrainingPluginThatDiesTakesItsInstancesWithIt(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	works := map[string]any{"language": "mock", "code": `{"stdout": "works"}`, "session_id": "s"}
	first := b.Execute(t, works)
	replacePlugin(t, b, "mock", another(t, b, "mock"))
	awaitTakeover(t, b, "mock")
	_, before := plugins(t, b, "mock")
	assert.Assert(t, is.Len(before, 1))
	assert.NilError(t, syscall.Kill(before[0], syscall.SIGKILL))
	awaitPlugins(t, b, "mock", 0)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Equal(b.Do(http.MethodGet, "/api/v1/instances/"+first.InstanceID, harness.Token, nil).Status, http.StatusNotFound))
	}, poll.WithTimeout(2*time.Minute))
	second := b.Execute(t, works)
	assert.Check(t, second.InstanceID != first.InstanceID)
}

// A broker that is killed during an upgrade leaves nothing that the next does not
// clear away.
func TestABrokerKilledDuringAnUpgradeLeavesNothing(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startReal(t, "")
	b.Execute(t, map[string]any{"language": "bash", "code": "true", "session_id": "s"})
	replacePlugin(t, b, "self_managed", another(t, b, "self_managed"))
	awaitTakeover(t, b, "self_managed")
	now, before := plugins(t, b, "self_managed")
	assert.Assert(t, is.Len(now, 1))
	assert.Assert(t, is.Len(before, 1))
	for _, pid := range append(now, before...) {
		assert.NilError(t, syscall.Kill(pid, syscall.SIGKILL)) // so that they clear nothing away themselves
	}
	b.Kill()
	b.WaitGone()
}
