package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// worksAgain waits until an instance can be made, used and destroyed.
func worksAgain(t *testing.T, b *harness.Broker) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "python", "code": "print(1)"})
		if answer.Status != http.StatusOK {
			return poll.Continue("%d %s", answer.Status, answer.Body)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(200*time.Millisecond))
}

func TestTheStateDirectoryIsRemovedWhileTheBrokerRuns(t *testing.T) {
	tier.Full(t)
	b := startCloud(t)
	before := create(t, b, harness.Token, map[string]any{"session_id": "before"})
	state := filepath.Join(b.Dir, "state")
	for _, what := range []string{"state.db", "lock", "broker_id", "preview_key", "backup.sock", "audit", "."} {
		// The broker may make something anew in what is being removed.
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if err := os.RemoveAll(filepath.Join(state, what)); err != nil {
				return poll.Continue("remove %s: %v", what, err)
			}
			return poll.Success()
		}, poll.WithTimeout(time.Minute), poll.WithDelay(time.Millisecond))
		worksAgain(t, b)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			for _, name := range []string{"state.db", "lock", "broker_id", "preview_key", "backup.sock", "audit"} {
				if _, err := os.Lstat(filepath.Join(state, name)); err != nil {
					return poll.Continue("%s removed: %v", what, err)
				}
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
		if what != "." {
			assert.DeepEqual(t, look(t, b, harness.Token, before.ID).ID, before.ID)
		}
	}
	info, err := os.Stat(state)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o700))
	brokerCommand(b, "state", "check").Assert(t, icmd.Expected{Out: "ok"})
	// The instance was in a file of the mock's in there too. The next one is adopted.
	after := create(t, b, harness.Token, map[string]any{"session_id": "after"})
	assert.Check(t, is.Contains(b.Log(), "was removed while the broker ran"))
	b.Kill()
	b.WaitGone()
	b.Restart()
	assert.DeepEqual(t, look(t, b, harness.Token, after.ID), after)
	assert.Check(t, !strings.Contains(b.Log(), "has lost a part of its state"))
}

func TestTheDirectoryOfTheSocketsIsRemovedWhileTheBrokerRuns(t *testing.T) {
	b := startCloud(t)
	sockets := func() []string {
		dirs, err := filepath.Glob(filepath.Join(b.Dir, "sandbox-broker-*"))
		assert.NilError(t, err)
		return dirs
	}
	before := sockets()
	assert.Equal(t, len(before), 1)
	assert.NilError(t, os.RemoveAll(before[0]))
	worksAgain(t, b) // by the connection that there is
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if now := sockets(); len(now) != 1 || now[0] != before[0] {
			return poll.Continue("%v", now)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.NilError(t, syscall.Kill(b.Plugin("mock_cloud"), syscall.SIGKILL))
	worksAgain(t, b)
	assert.Equal(t, b.Stop(), 0)
	assert.Equal(t, len(sockets()), 0)
}

func TestAPipeInTheStateDirectoryIsRefusedAtOnce(t *testing.T) {
	for _, name := range []string{"broker_id", "preview_key", "lock", "state.db"} {
		var pipe string
		log := harness.Refusal(t, harness.Options{
			Config: harness.Tenants + "provider \"mock\" {\n}\n", Plugins: map[string]string{"mock": mockPlugin},
			Prepare: func(dir string) {
				assert.NilError(t, os.Mkdir(filepath.Join(dir, "state"), 0o700))
				pipe = filepath.Join(dir, "state", name)
				assert.NilError(t, syscall.Mkfifo(pipe, 0o600))
			},
		})
		assert.NilError(t, os.Remove(pipe)) // the harness reads what is there
		assert.Check(t, is.Contains(log, "SB002"))
		assert.Check(t, is.Contains(log, name+" is not an ordinary file"))
	}
}
