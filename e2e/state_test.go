package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// createdInstance is the answer to a creation.
type createdInstance struct {
	ID        string    `json:"id"`
	SessionID string    `json:"session_id"`
	ExpiresAt time.Time `json:"expires_at"`
}

func create(t *testing.T, b *harness.Broker, token string, request map[string]any) createdInstance {
	t.Helper()
	answer := b.Do(http.MethodPost, "/api/v1/instances", token, request)
	assert.NilError(t, answer.Err)
	assert.Check(t, answer.Status == http.StatusCreated || answer.Status == http.StatusOK, "%s", answer.Body)
	var i createdInstance
	answer.Into(t, &i)
	return i
}

// startCloud starts a broker whose mock provider keeps its instances, as a cloud
// does, when broker and plugin are killed.
func startCloud(t *testing.T) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Options{
		Config:  harness.Tenants + "provider \"mock\" {\n  plugin = \"mock_cloud\"\n  persist = true\n}\n",
		Plugins: map[string]string{"mock_cloud": mockPlugin},
	})
}

// inCloud lists what the mock provider has, by the instance part of the IDs.
func inCloud(t *testing.T, b *harness.Broker) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.Dir, "state", "providers", "mock", "1", "instances.json"))
	if os.IsNotExist(err) {
		return nil
	}
	assert.NilError(t, err)
	var all map[string]struct {
		Instance struct{ Labels map[string]string }
	}
	assert.NilError(t, json.Unmarshal(text, &all))
	var names []string
	for _, i := range all {
		names = append(names, i.Instance.Labels["instance"])
	}
	return names
}

func instancePart(id string) string { return id[strings.LastIndexByte(id, ':')+1:] }

func TestAfterKillingTheBrokerAnOwnerIsToldThatItsSandboxEndedWithIt(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startReal(t, "")
	before := create(t, b, harness.Token, map[string]any{"session_id": "s"})
	b.Kill()
	b.WaitGone()
	b.Restart()
	told := harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+before.ID, harness.Token, nil), http.StatusNotFound, "SB013")
	assert.Check(t, is.Contains(told.Detail, "the broker was restarted"))
	run := b.Do(http.MethodPost, "/api/v1/instances/"+before.ID+"/execute", harness.Token, map[string]any{"language": "bash", "code": "echo x"})
	assert.Equal(t, harness.Refused(t, run, http.StatusNotFound, "SB013").Detail, told.Detail)

	never := harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/acme:s:aaaaaaaaaaaaaaaaaaaa", harness.Token, nil), http.StatusNotFound, "SB013")
	stranger := harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+before.ID, harness.OtherToken, nil), http.StatusNotFound, "SB013")
	assert.Equal(t, stranger.Detail, never.Detail, "others learn nothing")
	assert.Check(t, stranger.Detail != told.Detail)

	after := create(t, b, harness.Token, map[string]any{"session_id": "s"})
	assert.Check(t, after.ID != before.ID)

	// It is still told after a stop in order, which ends the next one.
	assert.Equal(t, b.Stop(), 0)
	b.WaitGone()
	b.Restart()
	again := harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+before.ID, harness.Token, nil), http.StatusNotFound, "SB013")
	assert.Equal(t, again.Detail, told.Detail)
	stopped := harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+after.ID, harness.Token, nil), http.StatusNotFound, "SB013")
	assert.Check(t, is.Contains(stopped.Detail, "the broker was stopped"))
}

func TestAnInstanceInACloudOutlivesTheBroker(t *testing.T) {
	t.Parallel()
	b := startCloud(t)
	kept := create(t, b, harness.Token, map[string]any{"session_id": "s", "ttl": 600})
	unnamed := create(t, b, harness.Token, map[string]any{"labels": map[string]any{"a": "b"}})
	others := create(t, b, harness.OtherToken, map[string]any{"session_id": "s"})
	again := func() {
		b.Kill()
		b.WaitGone()
		b.Restart()
	}
	again()
	for token, want := range map[string][]createdInstance{harness.Token: {kept, unnamed}, harness.OtherToken: {others}} {
		for _, i := range want {
			assert.DeepEqual(t, look(t, b, token, i.ID), i)
		}
	}
	assert.DeepEqual(t, create(t, b, harness.Token, map[string]any{"session_id": "s"}).ID, kept.ID)
	execution := b.Execute(t, map[string]any{"language": "python", "code": "hello", "session_id": "s"})
	assert.Equal(t, execution.InstanceID, kept.ID)
	assert.Equal(t, len(inCloud(t, b)), 3)

	// What its use has promised holds.
	promised := look(t, b, harness.Token, kept.ID).ExpiresAt
	again()
	assert.Check(t, !look(t, b, harness.Token, kept.ID).ExpiresAt.Before(promised))
	renewed := b.Do(http.MethodPost, "/api/v1/instances/"+kept.ID+"/renew", harness.Token, map[string]any{"ttl": 60})
	assert.Equal(t, renewed.Status, http.StatusOK, "%s", renewed.Body)
	promised = look(t, b, harness.Token, kept.ID).ExpiresAt
	again()
	assert.DeepEqual(t, look(t, b, harness.Token, kept.ID).ExpiresAt, promised)

	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+kept.ID, harness.OtherToken, nil), http.StatusNotFound, "SB013")
	assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/instances/"+kept.ID, harness.Token, nil).Status, http.StatusNoContent)
	again()
	assert.Equal(t, len(inCloud(t, b)), 2)
	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+kept.ID, harness.Token, nil), http.StatusNotFound, "SB013")
}

func look(t *testing.T, b *harness.Broker, token, id string) (i createdInstance) {
	t.Helper()
	answer := b.Do(http.MethodGet, "/api/v1/instances/"+id, token, nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	answer.Into(t, &i)
	return i
}

// actions has the mock provider act from now on.
func actions(t *testing.T, b *harness.Broker, text string) {
	t.Helper()
	path := filepath.Join(b.Dir, "state", "providers", "mock", "1", "actions.json")
	assert.NilError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	assert.NilError(t, os.Rename(path+".new", path))
}

// TestKillingTheBrokerDuringACreation has the provider at different points when the
// broker is killed. Whoever asks again for the same gets one instance, and whoever
// cannot ask again leaves none behind.
func TestKillingTheBrokerDuringACreation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action  string
		request map[string]any
		made    bool // by the provider, when the broker is killed
		left    int
	}{
		"of a session, before the provider made it": {`{"create": {"hang": true, "log": "mock create"}}`, map[string]any{"session_id": "s"}, false, 0},
		"of a session, after the provider made it":  {`{"create": {"hang_after": true, "log": "mock create"}}`, map[string]any{"session_id": "s"}, true, 1},
		"without a name, after it was made":         {`{"create": {"hang_after": true, "log": "mock create"}}`, map[string]any{}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := startCloud(t)
			actions(t, b, test.action)
			answered := make(chan harness.Answer, 1)
			go func() { answered <- b.Do(http.MethodPost, "/api/v1/instances", harness.Token, test.request) }()
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if !strings.Contains(b.Log(), "mock create") || test.made && len(inCloud(t, b)) == 0 {
					return poll.Continue("it has not come to that")
				}
				return poll.Success()
			}, poll.WithDelay(10*time.Millisecond), poll.WithTimeout(2*time.Minute))
			b.Kill()
			assert.Check(t, (<-answered).Err != nil)
			b.WaitGone()
			actions(t, b, "{}")
			before := inCloud(t, b)
			b.Restart()
			poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Len(inCloud(t, b), test.left)) }, poll.WithTimeout(2*time.Minute))
			if test.left > 0 {
				i := create(t, b, harness.Token, test.request)
				assert.DeepEqual(t, []string{instancePart(i.ID)}, before)
				assert.DeepEqual(t, inCloud(t, b), before)
			}
			if !test.made {
				// The same creation is asked for once more, late or not.
				create(t, b, harness.Token, test.request)
				assert.Check(t, is.Len(inCloud(t, b), 1))
			}
		})
	}
}

// keyed sends a request with an Idempotency-Key.
func keyed(b *harness.Broker, key, path string, body map[string]any) harness.Answer {
	return b.DoWith(http.MethodPost, path, harness.Token, body, map[string]string{"Idempotency-Key": key})
}

func TestAKeyHoldsAcrossTheDeathOfTheBroker(t *testing.T) {
	t.Parallel()
	b := startCloud(t)
	again := func() {
		b.Kill()
		b.WaitGone()
		b.Restart()
	}
	first := keyed(b, "done", "/api/v1/instances", map[string]any{})
	assert.Equal(t, first.Status, http.StatusCreated, "%s", first.Body)
	ran := keyed(b, "ran", "/api/v1/execute", map[string]any{"language": "mock", "code": `{"stdout": "once"}`})
	assert.Equal(t, ran.Status, http.StatusOK, "%s", ran.Body)

	// The provider has made it when the broker is killed.
	actions(t, b, `{"create": {"hang_after": true}}`)
	answered := make(chan harness.Answer, 1)
	go func() { answered <- keyed(b, "cut", "/api/v1/instances", map[string]any{"template": "python"}) }()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Len(inCloud(t, b), 2)) }, poll.WithTimeout(2*time.Minute))
	b.Kill()
	assert.Check(t, (<-answered).Err != nil)
	b.WaitGone()
	actions(t, b, "{}")
	b.Restart()
	cut := keyed(b, "cut", "/api/v1/instances", map[string]any{"template": "python"})
	assert.Check(t, cut.Status == http.StatusOK || cut.Status == http.StatusCreated, "%s", cut.Body)
	assert.Check(t, is.Len(inCloud(t, b), 2))

	for range 2 {
		assert.DeepEqual(t, keyed(b, "done", "/api/v1/instances", map[string]any{}).Body, first.Body)
		assert.DeepEqual(t, keyed(b, "ran", "/api/v1/execute", map[string]any{"language": "mock", "code": `{"stdout": "once"}`}).Body, ran.Body)
		assert.DeepEqual(t, keyed(b, "cut", "/api/v1/instances", map[string]any{"template": "python"}).Body, cut.Body)
		harness.Refused(t, keyed(b, "cut", "/api/v1/instances", map[string]any{"template": "bash"}), http.StatusUnprocessableEntity, "SB014")
		assert.Check(t, is.Len(inCloud(t, b), 2))
		again()
	}

	// An execution that was cut off is not done again.
	began := make(chan harness.Answer, 1)
	hang := map[string]any{"language": "mock", "code": `{"hang": true}`, "session_id": "s", "timeout": 60}
	go func() { began <- keyed(b, "hangs", "/api/v1/execute", hang) }()
	running(t, b, "s")
	again()
	assert.Check(t, (<-began).Err != nil)
	p := harness.Refused(t, keyed(b, "hangs", "/api/v1/execute", hang), http.StatusServiceUnavailable, "SB009")
	assert.Check(t, is.Contains(p.Detail, "whether it had effects is unknown"))
}
