package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
)

// fakeDaytona starts a fake of Daytona in this process.
func fakeDaytona(t *testing.T) *daytonafake.Server {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	server, err := daytonafake.Start(daytonafake.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, server.Close()) })
	return server
}

func daytonaOptions(t *testing.T, server *daytonafake.Server) harness.Options {
	t.Helper()
	return harness.Options{
		Config:  harness.Tenants + fmt.Sprintf("provider \"daytona\" {\n  api_key = %q\n  api_url = %q\n  keep_stopped = \"1h\"\n}\n", daytonafake.DefaultAPIKey, server.APIURL),
		Plugins: map[string]string{"daytona": filepath.Join(binaries.Dir(t), "plugins", "daytona")},
	}
}

// noneAtDaytona waits until there is no sandbox.
func noneAtDaytona(t *testing.T, server *daytonafake.Server) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n := len(server.Sandboxes()); n > 0 {
			return poll.Continue("there are %d sandboxes", n)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// What a provider in the process of a test cannot show: its own tests run all the rest.
func TestTheDaytonaPluginPassesTheCasesAboutProcesses(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	o := daytonaOptions(t, fakeDaytona(t))
	file := filepath.Join(t.TempDir(), "sandbox.hcl")
	assert.NilError(t, os.WriteFile(file, []byte(strings.TrimPrefix(o.Config, harness.Tenants)), 0o600))
	result := icmd.RunCommand(filepath.Join(binaries.Dir(t), "sandbox-broker"), "plugin", "verify", "--config", file,
		"--run", "^(process|description|configure|isolation)/", o.Plugins["daytona"])
	assert.NilError(t, result.Error, result.Combined())
}

// Killed with -9, it leaves nothing that is not found again: the session, its files and its
// context go on.
func TestASessionAtDaytonaOutlivesTheBroker(t *testing.T) {
	t.Parallel()
	server := fakeDaytona(t)
	b := harness.Start(t, daytonaOptions(t, server))
	kept := b.Execute(t, map[string]any{"language": "bash", "code": "echo mine > file", "session_id": "s"})
	assert.Equal(t, kept.Status, "succeeded", "%+v", kept)
	b.Kill()
	b.WaitGone()
	for _, id := range server.Sandboxes() { // as Daytona does with one that nobody uses
		assert.NilError(t, server.End(id))
	}
	b.Restart()
	read := b.Execute(t, map[string]any{"language": "python", "code": "print(open('file').read(), end='')", "session_id": "s"})
	assert.Equal(t, read.InstanceID, kept.InstanceID)
	assert.Equal(t, read.Stdout, "mine\n", "%+v", read)
	answer := b.Do(http.MethodDelete, "/api/v1/instances/"+kept.InstanceID, harness.Token, nil)
	assert.Equal(t, answer.Status, http.StatusNoContent, "%s", answer.Body)
	noneAtDaytona(t, server)
	assert.Check(t, !strings.Contains(b.Log(), daytonafake.DefaultAPIKey), "the key is in the log")
}

// The example of the repository, with a Daytona that is down, slow, refuses and comes back.
func TestDaytonaFirstAndThisMachineBehindIt(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := fakeDaytona(t)
	text, err := os.ReadFile("../examples/daytona-first/sandbox.hcl")
	assert.NilError(t, err)
	_, config, found := strings.Cut(string(text), "providers {")
	assert.Assert(t, found)
	config, _, _ = strings.Cut(config, "\ntenant ")
	bin := binaries.Dir(t)
	of := strings.NewReplacer(
		`env("DAYTONA_API_KEY", "not-set")`, strconv.Quote(daytonafake.DefaultAPIKey),
		`env("DAYTONA_API_URL", "https://app.daytona.io/api")`, strconv.Quote(server.APIURL),
		`create_timeout = "1m"`, `create_timeout = "10s"`, // nobody shall wait for it here
		`provider "self_managed" {`, fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q", binaries.Runsc(t)),
	)
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + "providers {" + of.Replace(config),
		Plugins: map[string]string{
			"daytona": filepath.Join(bin, "plugins", "daytona"), "self_managed": filepath.Join(bin, "plugins", "self_managed"),
		},
	})
	session := 0
	serves := func(want string) {
		t.Helper()
		session++
		answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{
			"language": "python", "code": "print(6 * 7)", "session_id": fmt.Sprint("s", session),
		})
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		var got struct {
			routed
			Stdout string `json:"stdout"`
		}
		assert.NilError(t, json.Unmarshal(answer.Body, &got))
		assert.Equal(t, got.Provider, want, "%s", answer.Body)
		assert.Equal(t, got.Stdout, "42\n")
	}
	serves("daytona")

	// It refuses, for want of room.
	server.Inject(daytonafake.Fault{
		On: "POST /api/sandbox", Status: http.StatusBadRequest, Header: map[string]string{"Content-Type": "application/json"},
		Body: `{"statusCode":400,"error":"Bad Request","message":"Total CPU limit exceeded. Maximum allowed: 10."}`,
	})
	serves("self_managed")
	server.Honest()
	serves("daytona")

	// It is slow: no answer comes.
	server.Inject(daytonafake.Fault{On: "POST /api/sandbox", Times: 1, Hang: true})
	serves("self_managed")
	server.Honest()

	// It is down, and back.
	repair := server.Break()
	serves("self_managed")
	repair()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		session++
		answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "bash", "code": "true", "session_id": fmt.Sprint("s", session)})
		var got routed
		if answer.Status != http.StatusOK || json.Unmarshal(answer.Body, &got) != nil || got.Provider != "daytona" {
			return poll.Continue("%s", answer.Body)
		}
		return poll.Success()
	}, poll.WithTimeout(3*time.Minute))

	// The first session is where it was.
	answer := b.Do(http.MethodGet, "/api/v1/instances?session_id=s1", harness.Token, nil)
	assert.Check(t, is.Contains(string(answer.Body), `"provider":"daytona"`))
	assert.Check(t, !strings.Contains(b.Log(), daytonafake.DefaultAPIKey), "the key is in the log")
}

// Broker and plugin are killed in the middle of creations and executions: nothing runs twice,
// what was answered holds, and nothing is left at Daytona.
func TestWhateverIsKilledNothingIsLeftAtDaytona(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := fakeDaytona(t)
	b := harness.Start(t, daytonaOptions(t, server))
	const rounds, sessions = 6, 3
	execute := func(session, code string) harness.Answer {
		return b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "bash", "code": code, "session_id": session})
	}
	answered := map[string]bool{}
	for round := range rounds {
		created := server.Created()
		var mu sync.Mutex
		var load sync.WaitGroup
		for i := range sessions {
			session := fmt.Sprintf("r%d-%d", round, i)
			load.Go(func() {
				answer := execute(session, "echo run >> log")
				mu.Lock()
				defer mu.Unlock()
				answered[session] = answer.Status == http.StatusOK // 0 where no answer came
			})
		}
		poll.WaitOn(t, func(poll.LogT) poll.Result { // in the middle of it
			if server.Created() < created+1+round%sessions {
				return poll.Continue("%d were made", server.Created()-created)
			}
			return poll.Success()
		}, poll.WithTimeout(time.Minute), poll.WithDelay(time.Millisecond))
		if round%2 == 0 {
			assert.NilError(t, syscall.Kill(b.Plugin("daytona"), syscall.SIGKILL))
			load.Wait()
		} else {
			b.Kill()
			b.WaitGone()
			load.Wait()
			b.Restart()
		}
	}
	for session, ran := range answered {
		var got struct{ Stdout string }
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			answer := execute(session, "cat log 2>/dev/null; true")
			if answer.Status != http.StatusOK {
				return poll.Continue("%s: %v %s", session, answer.Err, answer.Body)
			}
			answer.Into(t, &got)
			return poll.Success()
		}, poll.WithTimeout(3*time.Minute))
		assert.Check(t, got.Stdout == "run\n" || !ran && got.Stdout == "", "%s was answered: %v, and ran: %q", session, ran, got.Stdout)
	}
	var list struct{ Instances []struct{ ID string } }
	b.Do(http.MethodGet, "/api/v1/instances?limit=200", harness.Token, nil).Into(t, &list)
	for _, i := range list.Instances {
		answer := b.Do(http.MethodDelete, "/api/v1/instances/"+i.ID, harness.Token, nil)
		assert.Check(t, answer.Status == http.StatusNoContent || answer.Status == http.StatusNotFound, "%s", answer.Body)
	}
	noneAtDaytona(t, server)
}
