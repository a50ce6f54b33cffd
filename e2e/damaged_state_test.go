package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// brokerCommand runs the broker's own program on the configuration of a broker.
func brokerCommand(b *harness.Broker, args ...string) *icmd.Result {
	command := icmd.Command(filepath.Join(b.Dir, "bin", "sandbox-broker"), args...)
	return icmd.RunCmd(command, icmd.Dir(b.Dir), icmd.WithTimeout(4*time.Minute))
}

func TestADamagedStateIsASentenceAndCanBeRestored(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startCloud(t)
	kept := create(t, b, harness.Token, map[string]any{"session_id": "s", "ttl": 3600})
	backup := filepath.Join(b.Dir, "backup.db")
	brokerCommand(b, "state", "backup", backup).Assert(t, icmd.Expected{Out: "verified: 1 instance,"})
	brokerCommand(b, "state", "check").Assert(t, icmd.Expected{Out: "ok"})
	brokerCommand(b, "state", "restore").Assert(t, icmd.Expected{ExitCode: 1, Err: "stop it first"})
	b.Kill()
	b.WaitGone()

	path := filepath.Join(b.Dir, "state", "state.db")
	whole, err := os.ReadFile(path)
	assert.NilError(t, err)
	damages := map[string]func() []byte{
		"zeros": func() []byte { return make([]byte, len(whole)) },
		"text":  func() []byte { return bytes.Repeat([]byte("text\n"), len(whole)/5) },
	}
	for _, length := range []int{0, 1, 80, 4095, 4096, 8192, 12288, 16384, 20_000} {
		if length < len(whole) {
			damages[fmt.Sprintf("cut to %d", length)] = func() []byte { return whole[:length] }
		}
	}
	for page := 2; page < len(whole)/4096; page++ {
		damages[fmt.Sprintf("page %d of zeros", page)] = func() []byte {
			content := bytes.Clone(whole)
			clear(content[page*4096 : (page+1)*4096])
			return content
		}
	}
	refused := 0
	for name, damage := range damages {
		assert.NilError(t, os.WriteFile(path, damage(), 0o600))
		checked := brokerCommand(b, "state", "check")
		if checked.ExitCode == 0 {
			assert.Assert(t, strings.HasPrefix(name, "page"), name) // one that is free
			continue
		}
		assert.Equal(t, checked.ExitCode, 1, "%s: %s", name, checked.Combined())
		assert.Check(t, is.Contains(checked.Stdout(), "state.db: damaged"))
		served := brokerCommand(b, "serve")
		assert.Equal(t, served.ExitCode, 1, "%s: %s", name, served.Combined())
		for _, says := range []string{"SB009", "is not a state file, or it is damaged", "sandbox-broker state restore"} {
			assert.Check(t, is.Contains(served.Stderr(), says), name)
		}
		for _, says := range []string{"goroutine", "panic", "SIGBUS"} {
			assert.Check(t, !strings.Contains(served.Combined(), says), "%s: %s", name, served.Combined())
		}
		refused++
	}
	assert.Assert(t, refused > 10, "%d", refused)

	restored := brokerCommand(b, "state", "restore", "--from", backup)
	restored.Assert(t, icmd.Expected{Out: "1 instance"})
	b.Restart()
	assert.DeepEqual(t, look(t, b, harness.Token, kept.ID), kept)
	assert.Check(t, is.Contains(b.Log(), "the broker has lost a part of its state"))
	assert.Equal(t, len(inCloud(t, b)), 1)
	again := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "s"})
	assert.Equal(t, again.Status, http.StatusOK, "the session has its own: %s", again.Body)
	other := harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "other"}), http.StatusServiceUnavailable, "SB009")
	assert.Check(t, is.Contains(other.Detail, "has lost a part of its state"))
}

func TestAStateThatIsOverwrittenWhileTheBrokerRuns(t *testing.T) {
	t.Parallel()
	b := startCloud(t)
	kept := create(t, b, harness.Token, map[string]any{"session_id": "s"})
	path := filepath.Join(b.Dir, "state", "state.db")
	// As cp does: the file is cut first.
	assert.NilError(t, os.WriteFile(path, []byte("not a state file"), 0o600))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		answer := b.Do(http.MethodGet, "/readyz", "", nil)
		if answer.Status != http.StatusServiceUnavailable {
			return poll.Continue("%d %s", answer.Status, answer.Body)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	refused := harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{}), http.StatusServiceUnavailable, "SB009")
	assert.Check(t, is.Contains(refused.Detail, "damaged"))
	assert.Equal(t, b.Execute(t, map[string]any{"language": "python", "code": "hello", "session_id": "s"}).InstanceID, kept.ID, "what runs goes on")
	assert.Check(t, is.Contains(b.Log(), "is not a state file, or it is damaged"))
	assert.Equal(t, b.Stop(), 1)
	assert.Check(t, !strings.Contains(b.Log(), "goroutine"), "%s", b.Log())
}
