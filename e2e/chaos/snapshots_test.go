package chaos_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	api "github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// ofSnapshots says that a point is one of a snapshot's life, or of a fork's. The clients of
// most worlds make none; TestDyingBetweenAnyTwoStepsOfASnapshot and
// TestDyingInAForkLeavesAllCopiesOrNone come by these.
func ofSnapshots(p failpoint.Point) bool {
	return strings.HasPrefix(string(p), "snapshot.") || strings.HasPrefix(string(p), "fork.")
}

// snapshotCount is how many snapshots the mock provider has on its disk, and instanceCount how
// many instances.
func snapshotCount(t *testing.T, b *harness.Broker) int {
	t.Helper()
	return countIn(t, b, "snapshots.json")
}

func instanceCount(t *testing.T, b *harness.Broker) int {
	t.Helper()
	return countIn(t, b, "instances.json")
}

func countIn(t *testing.T, b *harness.Broker, file string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.Dir, "state", "providers", "mock", "1", file))
	if os.IsNotExist(err) {
		return 0
	}
	assert.NilError(t, err)
	var all map[string]json.RawMessage
	assert.NilError(t, json.Unmarshal(text, &all))
	return len(all)
}

func listedSnapshots(t *testing.T, b *harness.Broker) []api.Snapshot {
	t.Helper()
	var list api.SnapshotList
	b.Do(http.MethodGet, "/api/v1/snapshots", harness.Token, nil).Into(t, &list)
	return list.Snapshots
}

// agreed waits until broker and provider have that many.
func agreed(t *testing.T, b *harness.Broker, want int) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if has, lists := snapshotCount(t, b), len(listedSnapshots(t, b)); has != want || lists != want {
			return poll.Continue("the provider has %d snapshots and the broker lists %d; %d are right", has, lists, want)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// startMortal starts a broker with its fail points over the mock provider, whose instances
// outlive it.
func startMortal(t *testing.T) *harness.Broker {
	t.Helper()
	mock, remove, err := binaries.BuildMock()
	assert.NilError(t, err)
	t.Cleanup(remove)
	return harness.Start(t, harness.Options{
		Config:  harness.Tenants + "provider \"mock\" {\n  plugin = \"mock_cloud\"\n  persist = true\n}\n",
		Plugins: map[string]string{"mock_cloud": mock},
		Prepare: func(dir string) {
			at := filepath.Join(dir, "bin", "sandbox-broker")
			assert.NilError(t, os.Remove(at))
			binaries.Install(t, built.broker, at)
		},
	})
}

// TestDyingBetweenAnyTwoStepsOfASnapshot kills the broker at each step of the making and of
// the deletion of a snapshot. Who asks again with the same key has one snapshot; what was to
// be deleted is.
func TestDyingBetweenAnyTwoStepsOfASnapshot(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startMortal(t)
	var original api.Instance
	b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"template": "mock", "session_id": "s", "ttl": 3600}).Into(t, &original)
	path := "/api/v1/instances/" + original.ID + "/snapshots"
	points := 0
	for _, point := range failpoint.All() {
		if !strings.HasPrefix(string(point), "snapshot.") {
			continue
		}
		points++
		key := map[string]string{"Idempotency-Key": "at-" + string(point)}
		makes := func() harness.Answer {
			return b.DoWith(http.MethodPost, path, harness.Token, map[string]any{}, key)
		}
		deletion := point == failpoint.SnapshotEnding || point == failpoint.SnapshotDeleted
		var made api.Snapshot
		if deletion {
			makes().Into(t, &made)
		}
		b.Kill()
		b.WaitGone()
		b.RestartWith(dyingAt(point, 1))
		if deletion {
			b.Do(http.MethodDelete, "/api/v1/snapshots/"+made.ID, harness.Token, nil) // it is cut off
		} else {
			makes()
		}
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			select {
			case <-b.Ended():
				return poll.Success()
			default:
				return poll.Continue("the broker has not come by %s", point)
			}
		}, poll.WithTimeout(2*time.Minute))
		b.WaitGone()
		b.Restart()
		if !deletion {
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				answer := makes()
				if answer.Status != http.StatusCreated && answer.Status != http.StatusOK {
					return poll.Continue("%d %s", answer.Status, answer.Body)
				}
				answer.Into(t, &made)
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute))
			agreed(t, b, 1)
			assert.Equal(t, listedSnapshots(t, b)[0].ID, made.ID, "after %s", point)
			assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/snapshots/"+made.ID, harness.Token, nil).Status, http.StatusNoContent)
		}
		agreed(t, b, 0)
	}
	assert.Equal(t, points, 5)
}

// dyingAt has a broker kill itself when it comes by a point for that time.
func dyingAt(point failpoint.Point, hit int) string {
	return fmt.Sprintf("%s=%s=kill:%d", failpoint.Environment, point, hit)
}

// remember has an instance of the mock provider keep a text.
func remember(t *testing.T, b *harness.Broker, id, text string) {
	t.Helper()
	execute(t, b, id, `{"remember": "`+text+`"}`)
}

// remembered asks for it.
func remembered(t *testing.T, b *harness.Broker, id string) string {
	t.Helper()
	var done struct {
		Result struct {
			Memory string `json:"memory"`
		} `json:"result"`
	}
	execute(t, b, id, `{"echo": true}`).Into(t, &done)
	return done.Result.Memory
}

// execute waits until the broker knows of the instance again.
func execute(t *testing.T, b *harness.Broker, id, action string) (answer harness.Answer) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		answer = b.Do(http.MethodPost, "/api/v1/instances/"+id+"/execute", harness.Token, map[string]any{"language": "mock", "code": action})
		if answer.Status != http.StatusOK {
			return poll.Continue("%d %s", answer.Status, answer.Body)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	return answer
}

// TestDyingInAForkLeavesAllCopiesOrNone kills the broker while it makes the second of two
// copies, and when both are made. Who has no key is left with none, or with both where they
// were complete; who asks again with its key gets two of one moment, and no third is there.
func TestDyingInAForkLeavesAllCopiesOrNone(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startMortal(t)
	var original api.Instance
	b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"template": "mock", "session_id": "s", "ttl": 3600}).Into(t, &original)
	listed := func(name string) []api.Instance {
		var list api.InstanceList
		b.Do(http.MethodGet, "/api/v1/instances?label=fork%3D"+name, harness.Token, nil).Into(t, &list)
		return list.Instances
	}
	const forks = 2
	for _, test := range []struct {
		point failpoint.Point
		hit   int
		keyed bool
		// left is how many copies there are of a fork without a key, and of one with a key
		// before it is asked for again.
		left int
	}{
		{failpoint.CreateIntended, 2, false, 0},
		{failpoint.CreateMade, 2, false, 0},
		{failpoint.CreateMade, 2, true, 0},
		{failpoint.CreateNoted, 2, true, 0},
		{failpoint.CreateAnswer, 2, false, 0},
		{failpoint.ForkMade, 1, true, 0},
		{failpoint.ForkNoted, 1, false, forks},
		{failpoint.ForkNoted, 1, true, forks},
	} {
		name, key := strings.ReplaceAll(string(test.point), ".", "-"), ""
		if test.keyed {
			key = "key-" + name
			name += "-with-a-key"
		}
		t.Run(name, func(t *testing.T) {
			fork := func() harness.Answer {
				headers := map[string]string{}
				if key != "" {
					headers["Idempotency-Key"] = key
				}
				return b.DoWith(http.MethodPost, "/api/v1/instances/"+original.ID+"/fork", harness.Token,
					map[string]any{"count": forks, "labels": map[string]string{"fork": name}}, headers)
			}
			b.Kill()
			b.WaitGone()
			b.RestartWith(dyingAt(test.point, test.hit))
			remember(t, b, original.ID, "first "+name)
			fork() // it is cut off
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				select {
				case <-b.Ended():
					return poll.Success()
				default:
					return poll.Continue("the broker has not come by %s", test.point)
				}
			}, poll.WithTimeout(2*time.Minute))
			b.WaitGone()
			b.Restart()
			remember(t, b, original.ID, "second "+name) // which is as far as all is known again
			want, moment := test.left, "first "+name
			if key != "" {
				want = forks
				if test.left == 0 {
					moment = "second " + name
				}
				var told api.Fork
				poll.WaitOn(t, func(poll.LogT) poll.Result {
					answer := fork()
					if answer.Status != http.StatusCreated {
						return poll.Continue("%d %s", answer.Status, answer.Body)
					}
					answer.Into(t, &told)
					return poll.Success()
				}, poll.WithTimeout(2*time.Minute))
				assert.Equal(t, len(told.Instances), forks)
				for _, one := range told.Instances {
					assert.Equal(t, remembered(t, b, one.ID), moment)
				}
			}
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if lists, has := len(listed(name)), instanceCount(t, b); lists != want || has != want+1 {
					return poll.Continue("%d copies are listed, and the provider has %d; %d are right, beside the original", lists, has-1, want)
				}
				return poll.Success()
			}, poll.WithTimeout(leakBound))
			for _, one := range listed(name) {
				assert.Equal(t, remembered(t, b, one.ID), moment)
				assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/instances/"+one.ID, harness.Token, nil).Status, http.StatusNoContent)
			}
			agreed(t, b, 0)
		})
	}
}
