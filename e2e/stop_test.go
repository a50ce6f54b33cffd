package e2e_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// The setting is changed while the broker runs, so each stop goes by what is in force
// then: the first keeps what the cloud has, the second destroys it.
func TestAStopInOrderKeepsWhatCloudsHaveIfItShall(t *testing.T) {
	t.Parallel()
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + `
			providers {
			  active  = "mock"
			  on_stop = "destroy"
			}
			provider "mock" {
			  plugin  = "mock_cloud"
			  persist = true
			}
		`,
		Plugins: map[string]string{"mock_cloud": mockPlugin},
	})
	rewrite(t, b, with(`"destroy"`, `"keep"`))
	awaitLog(t, b, inForce, 1)
	assert.Check(t, is.Contains(b.Log(), `change="settings: providers"`))
	request := map[string]any{"session_id": "s", "ttl": 600, "env": map[string]any{"LEFT": "in the sandbox"}}
	kept := create(t, b, harness.Token, request)
	before := echoOf(t, b, "s")
	promised := look(t, b, harness.Token, kept.ID).ExpiresAt

	// Both of these run when the stop begins. One has an instance of its own.
	answers := make(chan harness.Answer, 2)
	for _, session := range []map[string]any{{"session_id": "s"}, {}} {
		session["language"], session["code"] = "mock", `{"delay": "2s", "stdout": "finished"}`
		go func() { answers <- b.Do(http.MethodPost, "/api/v1/execute", harness.Token, session) }()
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		lines, _ := auditLines(t, auditDir(b))
		begun := slices.DeleteFunc(lines, func(l auditLine) bool { return l.Event != "begin" || l.Operation != "execute_code" })
		return poll.Compare(is.Len(begun, 3))
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, b.Stop(), 0)
	for range cap(answers) {
		answer := <-answers
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		assert.Check(t, is.Contains(string(answer.Body), `"stdout":"finished"`))
	}
	b.WaitGone()
	assert.DeepEqual(t, inCloud(t, b), []string{instancePart(kept.ID)})
	lines, _ := auditLines(t, auditDir(b))
	for _, l := range ends(lines, "destroy_instance") {
		assert.Check(t, l.InstanceID != kept.ID, "%+v", l)
	}

	b.Restart()
	assert.Check(t, !look(t, b, harness.Token, kept.ID).ExpiresAt.Before(promised))
	assert.Equal(t, create(t, b, harness.Token, request).ID, kept.ID)
	after := echoOf(t, b, "s")
	assert.DeepEqual(t, after.InstanceEnv, map[string]string{"LEFT": "in the sandbox"})
	assert.Equal(t, after.InstanceID, before.InstanceID, "by the provider's own name")
	assert.Check(t, after.PID != before.PID)
	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+kept.ID, harness.OtherToken, nil), http.StatusNotFound, "SB013")

	rewrite(t, b, with(`"keep"`, `"destroy"`))
	awaitLog(t, b, inForce, 1) // of the log since the start
	assert.Equal(t, b.Stop(), 0)
	b.WaitGone()
	assert.Check(t, is.Len(inCloud(t, b), 0))
	b.Restart()
	told := harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+kept.ID, harness.Token, nil), http.StatusNotFound, "SB013")
	assert.Check(t, is.Contains(told.Detail, "the broker was stopped"))
	assert.Check(t, create(t, b, harness.Token, request).ID != kept.ID)
	lines, _ = auditLines(t, auditDir(b))
	destroyed := slices.DeleteFunc(ends(lines, "destroy_instance"), func(l auditLine) bool { return l.InstanceID != kept.ID })
	assert.Assert(t, is.Len(destroyed, 1))
	assert.Equal(t, destroyed[0].Cause, "shutdown")
	assert.Check(t, verifyAudit(t, auditDir(b)).OK)
}

// echo is what the mock provider knows of an execution and its instance.
type echo struct {
	InstanceID  string            `json:"instance_id"`
	InstanceEnv map[string]string `json:"instance_env"`
	PID         int               `json:"pid"`
}

func echoOf(t *testing.T, b *harness.Broker, session string) (e echo) {
	t.Helper()
	answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "mock", "code": `{"echo": true}`, "session_id": session})
	var execution struct {
		Result *echo `json:"result"`
	}
	execution.Result = &e
	answer.Into(t, &execution)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	return e
}
