package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// remember has an instance of the mock provider keep a text, and remembered asks for it.
func remember(t *testing.T, b *harness.Broker, id, text string) {
	t.Helper()
	answer := b.Do(http.MethodPost, "/api/v1/instances/"+id+"/execute", harness.Token, map[string]any{"language": "mock", "code": `{"remember": "` + text + `"}`})
	assert.NilError(t, answer.Err)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
}

type mockState struct {
	Memory      string            `json:"memory"`
	InstanceEnv map[string]string `json:"instance_env"`
}

func remembered(t *testing.T, b *harness.Broker, id string) mockState {
	t.Helper()
	answer := b.Do(http.MethodPost, "/api/v1/instances/"+id+"/execute", harness.Token, map[string]any{"language": "mock", "code": `{"echo": true}`})
	assert.NilError(t, answer.Err)
	var execution struct {
		Result mockState `json:"result"`
	}
	answer.Into(t, &execution)
	return execution.Result
}

func keep(t *testing.T, b *harness.Broker, id string, request map[string]any) client.Snapshot {
	t.Helper()
	answer := b.Do(http.MethodPost, "/api/v1/instances/"+id+"/snapshots", harness.Token, request)
	assert.NilError(t, answer.Err)
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	var made client.Snapshot
	answer.Into(t, &made)
	return made
}

func snapshotsOf(t *testing.T, b *harness.Broker, token string) (ids []string) {
	t.Helper()
	answer := b.Do(http.MethodGet, "/api/v1/snapshots", token, nil)
	assert.NilError(t, answer.Err)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	var list client.SnapshotList
	answer.Into(t, &list)
	for _, s := range list.Snapshots {
		ids = append(ids, s.ID)
	}
	return ids
}

// snapshotsInCloud lists what the mock provider has, by the broker's IDs.
func snapshotsInCloud(t *testing.T, b *harness.Broker) (ids []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.Dir, "state", "providers", "mock", "1", "snapshots.json"))
	assert.NilError(t, err)
	var all map[string]struct {
		Snapshot struct{ Labels map[string]string }
	}
	assert.NilError(t, json.Unmarshal(text, &all))
	for _, s := range all {
		ids = append(ids, s.Snapshot.Labels["snapshot"])
	}
	slices.Sort(ids)
	return ids
}

func TestASnapshotIsGoneOnFromAndOutlivesItsInstanceAndTheBroker(t *testing.T) {
	t.Parallel()
	b := startCloud(t)
	original := create(t, b, harness.Token, map[string]any{"template": "mock", "session_id": "first", "env": map[string]string{"A": "of the original"}})
	remember(t, b, original.ID, "one")
	kept := keep(t, b, original.ID, map[string]any{"name": "before", "labels": map[string]string{"a": "b"}, "ttl": 3600})
	assert.Assert(t, strings.HasPrefix(kept.ID, "snap-"))
	assert.Equal(t, kept.InstanceID, original.ID)
	assert.Assert(t, kept.Memory)
	remember(t, b, original.ID, "two")

	b.Kill()
	b.WaitGone()
	b.Restart()
	assert.DeepEqual(t, snapshotsOf(t, b, harness.Token), []string{kept.ID})
	assert.Equal(t, len(snapshotsOf(t, b, harness.OtherToken)), 0)
	destroyed := b.Do(http.MethodDelete, "/api/v1/instances/"+original.ID, harness.Token, nil)
	assert.Equal(t, destroyed.Status, http.StatusNoContent, "%s", destroyed.Body)

	copied := create(t, b, harness.Token, map[string]any{"snapshot": kept.ID, "session_id": "second", "env": map[string]string{"B": "of the copy"}})
	state := remembered(t, b, copied.ID)
	assert.Equal(t, state.Memory, "one")
	assert.DeepEqual(t, state.InstanceEnv, map[string]string{"A": "of the original", "B": "of the copy"})
	assert.Equal(t, create(t, b, harness.Token, map[string]any{"snapshot": kept.ID, "session_id": "second"}).ID, copied.ID)
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"snapshot": kept.ID, "template": "python"}), http.StatusUnprocessableEntity, "SB010")
	// Nobody else's, whatever is done with it.
	for method, path := range map[string]string{http.MethodGet: "/api/v1/snapshots/" + kept.ID, http.MethodDelete: "/api/v1/snapshots/" + kept.ID} {
		harness.Refused(t, b.Do(method, path, harness.OtherToken, nil), http.StatusNotFound, "SB013")
	}
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances", harness.OtherToken, map[string]any{"snapshot": kept.ID}), http.StatusNotFound, "SB013")

	deleted := b.Do(http.MethodDelete, "/api/v1/snapshots/"+kept.ID, harness.Token, nil)
	assert.Equal(t, deleted.Status, http.StatusNoContent, "%s", deleted.Body)
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"snapshot": kept.ID}), http.StatusNotFound, "SB013")
	assert.Equal(t, len(snapshotsInCloud(t, b)), 0)
	assert.Equal(t, remembered(t, b, copied.ID).Memory, "one", "what was made from it goes on")
}

func TestForksGoOnEachByItselfAndLeaveNoSnapshot(t *testing.T) {
	t.Parallel()
	b := startCloud(t)
	original := create(t, b, harness.Token, map[string]any{"template": "mock"})
	remember(t, b, original.ID, "root")
	answer := b.Do(http.MethodPost, "/api/v1/instances/"+original.ID+"/fork", harness.Token, map[string]any{"session_ids": []string{"left", "right"}, "labels": map[string]string{"depth": "1"}})
	assert.NilError(t, answer.Err)
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	var fork client.Fork
	answer.Into(t, &fork)
	assert.Equal(t, len(fork.Instances), 2)
	for i, session := range []string{"left", "right"} {
		one := fork.Instances[i]
		assert.Equal(t, one.SessionID, session)
		assert.Equal(t, one.From, original.ID)
		assert.Equal(t, remembered(t, b, one.ID).Memory, "root")
		remember(t, b, one.ID, session)
	}
	assert.Equal(t, remembered(t, b, fork.Instances[0].ID).Memory, "left")
	assert.Equal(t, remembered(t, b, original.ID).Memory, "root")
	assert.Equal(t, len(snapshotsOf(t, b, harness.Token)), 0)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if left := snapshotsInCloud(t, b); len(left) > 0 {
			return poll.Continue("%v", left)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	// One session is taken: none of the two stays.
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances/"+original.ID+"/fork", harness.Token, map[string]any{"session_ids": []string{"new", "left"}}), http.StatusConflict, "SB014")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n := len(inCloud(t, b)); n != 3 {
			return poll.Continue("%d instances", n)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// steer has the mock provider do something in every call of that name.
func steer(t *testing.T, b *harness.Broker, actions string) {
	t.Helper()
	path := filepath.Join(b.Dir, "state", "providers", "mock", "1", "actions.json")
	assert.NilError(t, os.WriteFile(path, []byte(actions), 0o600))
}

// TestABrokerThatIsKilledBetweenIntentAndRecordHasOneSnapshot kills it while the provider has
// made the snapshot and has not answered.
func TestABrokerThatIsKilledBetweenIntentAndRecordHasOneSnapshot(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"with a key": "once", "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startCloud(t)
			original := create(t, b, harness.Token, map[string]any{"template": "mock", "session_id": "s", "ttl": 3600})
			remember(t, b, original.ID, "kept")
			steer(t, b, `{"snapshot": {"hang_after": true}}`)
			var headers map[string]string
			if key != "" {
				headers = map[string]string{"Idempotency-Key": key}
			}
			path := "/api/v1/instances/" + original.ID + "/snapshots"
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				b.DoWith(http.MethodPost, path, harness.Token, map[string]any{}, headers) // it is cut off
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if _, err := os.Stat(filepath.Join(b.Dir, "state", "providers", "mock", "1", "snapshots.json")); err != nil || len(snapshotsInCloud(t, b)) == 0 {
					return poll.Continue("not made yet")
				}
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute))
			b.Kill()
			b.WaitGone()
			<-asked
			steer(t, b, `{}`)
			b.Restart()
			if key == "" { // nobody can ask for it
				poll.WaitOn(t, func(poll.LogT) poll.Result {
					if left := snapshotsInCloud(t, b); len(left) > 0 {
						return poll.Continue("%v", left)
					}
					return poll.Success()
				}, poll.WithTimeout(2*time.Minute))
				assert.Equal(t, len(snapshotsOf(t, b, harness.Token)), 0)
				return
			}
			var again client.Snapshot
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				answer := b.DoWith(http.MethodPost, path, harness.Token, map[string]any{}, headers)
				if answer.Status != http.StatusCreated && answer.Status != http.StatusOK {
					return poll.Continue("%d %s", answer.Status, answer.Body)
				}
				answer.Into(t, &again)
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute))
			assert.DeepEqual(t, snapshotsInCloud(t, b), []string{again.ID})
			assert.DeepEqual(t, snapshotsOf(t, b, harness.Token), []string{again.ID})
			assert.Equal(t, remembered(t, b, create(t, b, harness.Token, map[string]any{"snapshot": again.ID}).ID).Memory, "kept")
		})
	}
}
