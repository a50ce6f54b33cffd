package soak_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

const adminAPI = "/api/admin/sandbox"

// delivery is one way in which a configuration reaches the broker.
type delivery struct {
	name    string
	deliver func(t testing.TB, b *harness.Broker, text string)
}

var deliveries = []delivery{
	{"a save by rename", saveByRename},
	{"a save in place", func(t testing.TB, b *harness.Broker, text string) {
		t.Helper()
		assert.NilError(t, os.WriteFile(b.ConfigFile(), []byte(text), 0o644))
	}},
	{"a save and a signal", func(t testing.TB, b *harness.Broker, text string) {
		t.Helper()
		saveByRename(t, b, text)
		assert.NilError(t, syscall.Kill(b.PID, syscall.SIGHUP))
	}},
	{"a save and the admin API", func(t testing.TB, b *harness.Broker, text string) {
		t.Helper()
		saveByRename(t, b, text)
		answer := b.Do(http.MethodPost, adminAPI+"/reload", adminToken, nil)
		assert.Check(t, answer.Status == http.StatusOK || answer.Status == http.StatusBadRequest, "%s %v", answer.Body, answer.Err)
	}},
}

func saveByRename(t testing.TB, b *harness.Broker, text string) {
	t.Helper()
	assert.NilError(t, os.WriteFile(b.ConfigFile()+".new", []byte(text), 0o644))
	assert.NilError(t, os.Rename(b.ConfigFile()+".new", b.ConfigFile()))
}

// attempt is what the broker tells of a change.
type attempt struct {
	Revision, Result, Trigger string
	Generation                int
	TookMS                    float64 `json:"took_ms"`
	Diagnostics               []struct{ Summary, Detail string }
}

func attempts(t testing.TB, b *harness.Broker) []attempt {
	t.Helper()
	var list struct{ Data []attempt }
	answer := b.Do(http.MethodGet, adminAPI+"/generations", adminToken, nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	answer.Into(t, &list)
	return list.Data
}

// awaitResult waits until the broker has tried what is in the files, and returns
// what became of it.
func awaitResult(t testing.TB, b *harness.Broker, what string) attempt {
	t.Helper()
	cfg, _ := config.Load(b.ConfigFile()) // of what is wrong, the revision is right
	var found attempt
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		for _, a := range attempts(t, b) {
			// The same again, by a signal after the save, is unchanged.
			if a.Revision == cfg.Revision && a.Result != "unchanged" {
				found = a
				return poll.Success()
			}
		}
		return poll.Continue("%s: the broker has not tried it yet\n%s", what, tail(b.Log()))
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
	return found
}

func tail(log string) string { return log[max(0, len(log)-4096):] }

// edit changes settings of the mock provider by the admin API.
func edit(t testing.TB, b *harness.Broker, mock map[string]any) harness.Answer {
	t.Helper()
	return b.Do(http.MethodPost, adminAPI+"/config", adminToken, map[string]any{
		"provider_type": "mock", "config": mock, "set_active": false,
	})
}

// markInForce is the mark that a new execution sees.
func markInForce(t testing.TB, b *harness.Broker) string {
	t.Helper()
	mark, err := markOf(b, map[string]any{"language": "mock", "code": `{"echo": true}`})
	assert.NilError(t, err)
	return mark
}

// markOf executes on the mock provider and returns the mark that its process has.
func markOf(b *harness.Broker, request map[string]any) (mark string, err error) {
	answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request)
	if answer.Err != nil {
		return "", answer.Err
	}
	var e harness.Execution
	var seen struct{ Mark string }
	if err := json.Unmarshal(answer.Body, &e); err != nil || answer.Status != http.StatusOK || e.Status != "succeeded" {
		return "", fmt.Errorf("HTTP %d: %s", answer.Status, answer.Body)
	}
	if err := json.Unmarshal(e.Result, &seen); err != nil {
		return "", err
	}
	if strings.HasPrefix(seen.Mark, "broken") || seen.Mark == "" {
		return "", fmt.Errorf("an execution saw the mark %q", seen.Mark)
	}
	return seen.Mark, nil
}
