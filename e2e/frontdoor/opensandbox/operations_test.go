package opensandbox_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

func TestAnOperationIsBegunOnceThoughTheBrokerIsKilled(t *testing.T) {
	b := frontdoor.On(t, frontdoor.E2B, cloudDoor)
	status, text := do(t, http.MethodPost, b.URL+"/opensandbox/v1/sandboxes", key(harness.Token), `{"image":{"uri":"python:3.12"},"timeout":600}`)
	assert.Equal(t, status, http.StatusAccepted, text)
	var made struct{ ID string }
	assert.NilError(t, json.Unmarshal([]byte(text), &made))
	execd := func(method, path, body string) (int, string) {
		t.Helper()
		return do(t, method, b.URL+"/opensandbox/sandboxes/"+made.ID+"/proxy/44772"+path, key(harness.Token), body)
	}
	instance := func() (named struct {
		ID       string `json:"instance_id"`
		IssuedAt int64  `json:"issued_at"`
	},
	) {
		t.Helper()
		status, text := execd(http.MethodGet, "/execution/instance", "")
		assert.Equal(t, status, http.StatusOK, text)
		assert.NilError(t, json.Unmarshal([]byte(text), &named))
		return named
	}
	named := instance()
	id := fmt.Sprintf("%s.%d.once-and-no-more", named.ID, named.IssuedAt)
	request := fmt.Sprintf(`{"operation_id":%q,"command":"echo begun >> /workspace/begun; exec sleep 600"}`, id)
	status, first := execd(http.MethodPost, "/command/operations", request)
	assert.Equal(t, status, http.StatusOK, first)
	assert.Check(t, is.Contains(first, `"state":"created"`))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if status, text := execd(http.MethodGet, "/files/download?path=/workspace/begun", ""); status != http.StatusOK {
			return poll.Continue("%d %s", status, text)
		}
		return poll.Success()
	}, poll.WithDelay(50*time.Millisecond), poll.WithTimeout(time.Minute))

	b.Kill()
	b.WaitGone()
	b.Restart()
	assert.Equal(t, instance().ID, named.ID)
	for range 3 {
		status, again := execd(http.MethodPost, "/command/operations", request)
		assert.Equal(t, status, http.StatusOK, again)
		assert.Equal(t, again, first)
	}
	status, text = execd(http.MethodPost, "/command/operations", fmt.Sprintf(`{"operation_id":%q,"command":"echo other"}`, id))
	assert.Equal(t, status, http.StatusConflict, text)
	assert.Check(t, is.Contains(text, `"code":"operation_conflict"`))

	// The provider's new process knows the commands that it has started itself: none.
	var instances struct{ Instances []struct{ ID string } }
	assert.NilError(t, json.Unmarshal(b.Do(http.MethodGet, "/api/v1/instances", harness.Token, nil).Body, &instances))
	assert.Assert(t, is.Len(instances.Instances, 1))
	var commands struct{ Commands []struct{ ID string } }
	answer := b.Do(http.MethodGet, "/api/v1/instances/"+instances.Instances[0].ID+"/commands", harness.Token, nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	assert.NilError(t, json.Unmarshal(answer.Body, &commands))
	assert.Check(t, is.Len(commands.Commands, 0))
	status, text = execd(http.MethodGet, "/files/download?path=/workspace/begun", "")
	assert.Equal(t, status, http.StatusOK, text)
	assert.Equal(t, text, "begun\n")
}
