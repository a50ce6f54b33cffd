package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/postgres"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

const cloudConfig = harness.Tenants + "provider \"mock\" {\n  plugin = \"mock_cloud\"\n  persist = true\n}\n"

// What a broker has in a file goes with it into a database, and outlives its processes there.
func TestTheStateMovesIntoADatabase(t *testing.T) {
	t.Setenv(postgres.BesideVariable, "") // it begins with a file, also where others have databases
	server := postgres.Start(t)
	b := harness.Start(t, harness.Options{Config: cloudConfig, Plugins: map[string]string{"mock_cloud": mockPlugin}})
	kept := create(t, b, harness.Token, map[string]any{"session_id": "s", "ttl": 600})
	ran := keyed(b, "ran", "/api/v1/execute", map[string]any{"language": "mock", "code": `{"stdout": "once"}`})
	assert.Equal(t, ran.Status, http.StatusOK, "%s", ran.Body)
	ended := create(t, b, harness.Token, map[string]any{"session_id": "other"})
	b.Kill()
	b.WaitGone()

	text, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	database := server.Database()
	moved := strings.Replace(string(text), `state = "./state"`, `state = "`+database+`"`+"\ndata  = \"./state\"", 1)
	assert.Assert(t, moved != string(text), "%s", text)
	assert.NilError(t, os.WriteFile(b.ConfigFile(), []byte(moved), 0o644))
	b.Restart()
	assert.Check(t, is.Contains(b.Log(), "the records of the state file are in the database now"))
	stillThere := func() {
		t.Helper()
		assert.DeepEqual(t, look(t, b, harness.Token, kept.ID).SessionID, kept.SessionID)
		assert.DeepEqual(t, create(t, b, harness.Token, map[string]any{"session_id": "s"}).ID, kept.ID)
		assert.DeepEqual(t, keyed(b, "ran", "/api/v1/execute", map[string]any{"language": "mock", "code": `{"stdout": "once"}`}).Body, ran.Body)
	}
	stillThere()
	assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/instances/"+ended.ID, harness.Token, nil).Status, http.StatusNoContent)
	b.Kill()
	b.WaitGone()
	b.Restart()
	assert.Check(t, !strings.Contains(b.Log(), "are in the database now"))
	stillThere()
	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+ended.ID, harness.Token, nil), http.StatusNotFound, "SB013")
	_, err = os.Lstat(filepath.Join(b.Dir, "state", "state.db"))
	assert.Check(t, os.IsNotExist(err), "%v", err)
}

// The database goes away: what runs goes on, nothing new is begun, and every caller is told
// when to come again. It comes back, and so does the broker.
func TestADatabaseThatGoesAway(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	b := harness.Start(t, harness.Options{
		Config:   harness.Tenants + fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  pool_size = 1\n}\n", binaries.Runsc(t)),
		Database: server.Database(),
	})
	kept := create(t, b, harness.Token, map[string]any{"session_id": "s", "ttl": 3600})
	path := "/api/v1/instances/" + kept.ID
	running := make(chan harness.Answer, 1)
	go func() {
		running <- b.Do(http.MethodPost, path+"/execute", harness.Token, map[string]any{
			"language": "bash", "timeout": 300, "code": "touch up; until [ -e go ]; do sleep 0.1; done; echo went on",
		})
	}()
	await(t, b, "the code runs", func() bool {
		return b.Do(http.MethodGet, path+"/files/stat?path=up", harness.Token, nil).Status == http.StatusOK
	})
	for name, end := range map[string]func(){"down": server.Down, "killed": server.Kill} {
		end()
		await(t, b, name+": the broker takes nothing new", func() bool {
			return b.Do(http.MethodGet, "/readyz", "", nil).Status == http.StatusServiceUnavailable
		})
		for what, body := range map[string]map[string]any{
			"/api/v1/instances": {"session_id": "new"},
			"/api/v1/execute":   {"language": "bash", "code": "echo"},
			path + "/execute":   {"language": "bash", "code": "echo"},
		} {
			answer := b.Do(http.MethodPost, what, harness.Token, body)
			harness.Refused(t, answer, http.StatusServiceUnavailable, "SB009")
			assert.Check(t, answer.Header.Get("Retry-After") != "", "%s %s", name, what)
			assert.Check(t, !strings.Contains(string(answer.Body), "127.0.0.1"), "%s", answer.Body)
		}
		assert.Equal(t, b.Do(http.MethodGet, "/healthz", "", nil).Status, http.StatusOK)
		assert.DeepEqual(t, look(t, b, harness.Token, kept.ID).ID, kept.ID)
		select {
		case answer := <-running:
			t.Fatalf("what runs does not go on: %s", answer.Body)
		default:
		}
		server.Up()
		await(t, b, name+": the broker is ready", func() bool { return b.Do(http.MethodGet, "/readyz", "", nil).Status == http.StatusOK })
		assert.DeepEqual(t, create(t, b, harness.Token, map[string]any{"session_id": "s"}).ID, kept.ID)
	}
	answer := b.Do(http.MethodPost, path+"/execute", harness.Token, map[string]any{"language": "bash", "code": "touch go"})
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	answer = <-running
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	assert.Check(t, is.Contains(string(answer.Body), "went on"))
}

func await(t *testing.T, b *harness.Broker, what string, done func() bool) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if !done() {
			return poll.Continue("not yet: %s\n%s", what, b.Log())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// A copy of the data directory is started: it is refused while the original lives, and takes
// over from one that stood still for longer than its lease, which ends when it goes on.
func TestACopyOfTheDataDirectory(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := postgres.Start(t)
	database := server.Database()
	options := harness.Options{Config: cloudConfig, Plugins: map[string]string{"mock_cloud": mockPlugin}, Database: database}
	original := harness.Start(t, options)
	id, err := os.ReadFile(filepath.Join(original.Dir, "state", "broker_id"))
	assert.NilError(t, err)
	options.Prepare = func(dir string) {
		assert.NilError(t, os.Mkdir(filepath.Join(dir, "state"), 0o700))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "state", "broker_id"), id, 0o600))
	}
	assert.Check(t, is.Contains(harness.Refusal(t, options), "another broker with the ID"))
	original.Suspend()
	second := harness.Start(t, options)
	assert.NilError(t, syscall.Kill(original.PID, syscall.SIGCONT))
	<-original.Ended()
	assert.Check(t, is.Contains(original.Log(), "another process has taken over the state of this broker"))
	original.WaitGone()
	assert.DeepEqual(t, create(t, second, harness.Token, map[string]any{"session_id": "t"}).SessionID, "t")
}
