package e2e_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// peers starts brokers on one database that pass calls on to each other.
func peers(t *testing.T, count int, config string, plugins map[string]string) []*harness.Broker {
	t.Helper()
	return peersOf(t, slices.Repeat([]string{config}, count), "", plugins)
}

// peersOf is peers for brokers of different configurations. settings stand in their block peers.
func peersOf(t *testing.T, configs []string, settings string, plugins map[string]string) []*harness.Broker {
	t.Helper()
	return harness.StartPeers(t, harness.Options{Plugins: plugins}, settings, configs...)
}

func selfManaged(t *testing.T) string {
	t.Helper()
	return harness.Tenants + fmt.Sprintf("limits {\n  create_timeout = \"5m\"\n}\nprovider \"self_managed\" {\n  runsc = %q\n  pool_size = 1\n  memory_mb = 256\n  queue_timeout = \"4m\"\n}\n", binaries.Runsc(t))
}

// Two brokers on one database, each with sandboxes of its own machine: whatever is begun by one
// goes on through the other.
func TestAnyBrokerTakesAnyCall(t *testing.T) {
	t.Parallel()
	all := peers(t, 2, selfManaged(t), nil)
	a, b := all[0], all[1]
	made := create(t, a, harness.Token, map[string]any{"session_id": "s", "ttl": 600})
	path := "/api/v1/instances/" + made.ID

	// The session is the same through both, and so is what it holds.
	assert.Equal(t, create(t, b, harness.Token, map[string]any{"session_id": "s"}).ID, made.ID)
	for n, through := range []*harness.Broker{b, a, b} {
		e := through.Execute(t, map[string]any{"session_id": "s", "language": "bash", "code": fmt.Sprintf("echo %d >> /workspace/log; cat /workspace/log | wc -l", n)})
		assert.Equal(t, strings.TrimSpace(e.Stdout), fmt.Sprint(n+1))
		assert.Equal(t, e.InstanceID, made.ID)
	}
	assert.Equal(t, look(t, b, harness.Token, made.ID).SessionID, "s")
	harness.Refused(t, b.Do(http.MethodGet, path, harness.OtherToken, nil), http.StatusNotFound, "SB013")
	never := strings.TrimSuffix(made.ID, instancePart(made.ID)) + "aaaaaaaaaaaaaaaaaaaa"
	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+never, harness.Token, nil), http.StatusNotFound, "SB013")

	// What streams, both ways.
	content := make([]byte, 16<<20)
	_, err := rand.Read(content)
	assert.NilError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.URL+path+"/files/content?path=large", bytes.NewReader(content))
	assert.NilError(t, err)
	request.Header.Set("Authorization", "Bearer "+harness.Token)
	request.Header.Set("Content-Type", "application/octet-stream")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
	put, err := client.Do(request)
	assert.NilError(t, err)
	said, err := io.ReadAll(put.Body)
	assert.NilError(t, err)
	assert.NilError(t, put.Body.Close())
	assert.Check(t, put.StatusCode < 300, "%s", said)
	for _, through := range all {
		answer := through.Do(http.MethodGet, path+"/files/content?path=large", harness.Token, nil)
		assert.Equal(t, answer.Status, http.StatusOK)
		assert.Equal(t, sha256.Sum256(answer.Body), sha256.Sum256(content))
	}

	// What was asked of one with a key is answered by both, once done.
	first := keyed(a, "once", "/api/v1/execute", map[string]any{"session_id": "s", "language": "bash", "code": "date +%N"})
	assert.Equal(t, first.Status, http.StatusOK, "%s", first.Body)
	again := keyed(b, "once", "/api/v1/execute", map[string]any{"session_id": "s", "language": "bash", "code": "date +%N"})
	assert.Equal(t, string(again.Body), string(first.Body))
	harness.Refused(t, keyed(b, "once", "/api/v1/execute", map[string]any{"session_id": "s", "language": "bash", "code": "other"}), http.StatusUnprocessableEntity, "SB014")

	// Destroyed through one, it is gone through both, and the session begins anew where it is
	// asked for.
	assert.Equal(t, b.Do(http.MethodDelete, path, harness.Token, nil).Status, http.StatusNoContent)
	for _, through := range all {
		harness.Refused(t, through.Do(http.MethodGet, path, harness.Token, nil), http.StatusNotFound, "SB013")
	}
	anew := create(t, b, harness.Token, map[string]any{"session_id": "s"})
	assert.Check(t, anew.ID != made.ID)
	assert.Equal(t, create(t, a, harness.Token, map[string]any{"session_id": "s"}).ID, anew.ID)
}

// Many ask for the same sessions through all brokers at once: each session has one instance.
func TestASessionHasOneInstanceWhoeverIsAsked(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	all := peers(t, 3, cloudConfig, map[string]string{"mock_cloud": mockPlugin})
	const sessions = 6
	var mu sync.Mutex
	made := map[string]map[string]bool{}
	var group sync.WaitGroup
	for n := range 60 {
		group.Go(func() {
			session := fmt.Sprint("s", n%sessions)
			answer := all[n%len(all)].Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": session, "ttl": 600})
			if !assert.Check(t, answer.Status == http.StatusCreated || answer.Status == http.StatusOK, "%v %s", answer.Err, answer.Body) {
				return
			}
			var i createdInstance
			answer.Into(t, &i)
			mu.Lock()
			defer mu.Unlock()
			if made[session] == nil {
				made[session] = map[string]bool{}
			}
			made[session][i.ID] = true
		})
	}
	group.Wait()
	inClouds := 0
	for _, b := range all {
		inClouds += len(inCloud(t, b))
	}
	for session, ids := range made {
		assert.Check(t, is.Len(ids, 1), "%s", session)
	}
	assert.Check(t, is.Equal(inClouds, sessions))
}

// A tenant that may have four instances has four, whoever it asks.
func TestAQuotaOfInstancesHoldsOnAllBrokersTogether(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	all := peers(t, 3, strings.Replace(cloudConfig, "quota { max_concurrent = 10000 }", "quota {\n  max_concurrent = 10000\n  max_instances  = 4\n}", 1), map[string]string{"mock_cloud": mockPlugin})
	var made, refused atomic.Int64
	var group sync.WaitGroup
	for n := range 30 {
		group.Go(func() {
			answer := all[n%len(all)].Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"ttl": 600})
			switch answer.Status {
			case http.StatusCreated:
				made.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
				assert.Check(t, is.Contains(string(answer.Body), "max_instances = 4"))
			default:
				t.Errorf("%v %s", answer.Err, answer.Body)
			}
		})
	}
	group.Wait()
	assert.Equal(t, made.Load(), int64(4))
	assert.Equal(t, refused.Load(), int64(26))
	inClouds := 0
	for _, b := range all {
		inClouds += len(inCloud(t, b))
	}
	assert.Equal(t, inClouds, 4)
}

// quotaOfPeers is a configuration of brokers in which a tenant has these quotas.
func quotaOfPeers(quotas string) string {
	return strings.Replace(cloudConfig, "quota { max_concurrent = 10000 }", "quota {\n"+quotas+"\n}", 1)
}

// A tenant that may have forty executions a day has forty, whoever it asks, and no fewer: also
// when one of the brokers was killed and comes back.
func TestAQuotaOfADayHoldsOnAllBrokersTogether(t *testing.T) {
	t.Parallel()
	const most = 40
	all := peers(t, 3, quotaOfPeers(fmt.Sprintf("max_concurrent = 10000\nexecutions_per_day = %d", most)), map[string]string{"mock_cloud": mockPlugin})
	day := time.Now().UTC().Day()
	race := func(requests int) (ran int64) {
		var succeeded atomic.Int64
		var group sync.WaitGroup
		for n := range requests {
			group.Go(func() {
				switch answer := executeMock(all[n%len(all)], harness.Token, nil); answer.Status {
				case http.StatusOK:
					succeeded.Add(1)
				case http.StatusTooManyRequests:
					assert.Check(t, is.Contains(string(answer.Body), "executions_per_day"))
				default:
					t.Errorf("%v %s", answer.Err, answer.Body)
				}
			})
		}
		group.Wait()
		return succeeded.Load()
	}
	ran := race(most / 2)
	assert.Equal(t, ran, int64(most/2))
	all[1].Kill()
	all[1].WaitGone()
	all[1].Restart()
	ran += race(2 * most)
	if day != time.Now().UTC().Day() {
		t.Skip("a day has begun meanwhile")
	}
	assert.Equal(t, ran, int64(most))
}

// Who waits at one broker for an instance gets it when one ends at another.
func TestWhoWaitsIsServedByAnEndElsewhere(t *testing.T) {
	t.Parallel()
	all := peers(t, 3, quotaOfPeers("max_concurrent = 10000\nmax_instances = 1"), map[string]string{"mock_cloud": mockPlugin})
	made := create(t, all[0], harness.Token, map[string]any{"ttl": 3600})
	served := make(chan harness.Answer, 2)
	for n, b := range all[1:] {
		go func() {
			served <- b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"ttl": 3600, "wait_ms": 60_000})
		}()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			var usage struct{ Waiting int }
			b.Do(http.MethodGet, "/api/v1/usage", harness.Token, nil).Into(t, &usage)
			if usage.Waiting != n+1 {
				return poll.Continue("it does not wait yet: %d do", usage.Waiting)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	}
	harness.Refused(t, all[2].Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"ttl": 3600}), http.StatusTooManyRequests, "SB008")
	for range 2 {
		assert.Equal(t, all[0].Do(http.MethodDelete, "/api/v1/instances/"+made.ID, harness.Token, nil).Status, http.StatusNoContent)
		answer := <-served
		assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
		answer.Into(t, &made)
	}
	inClouds := 0
	for _, b := range all {
		inClouds += len(inCloud(t, b))
	}
	assert.Equal(t, inClouds, 1)
}

// One is killed: its sessions are told as away for a moment, and begin anew elsewhere. When it
// comes back, what it had of these is gone.
func TestTheSessionsOfADeadBrokerBeginAnewElsewhere(t *testing.T) {
	t.Parallel()
	all := peers(t, 2, cloudConfig, map[string]string{"mock_cloud": mockPlugin})
	a, b := all[0], all[1]
	made := create(t, a, harness.Token, map[string]any{"session_id": "s", "ttl": 3600})
	kept := create(t, a, harness.Token, map[string]any{"session_id": "kept", "ttl": 3600})
	a.Kill()
	a.WaitGone()
	away := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "s"})
	harness.Refused(t, away, http.StatusServiceUnavailable, "SB009")
	assert.Check(t, away.Header.Get("Retry-After") != "")
	var anew createdInstance
	await(t, b, "the session begins anew", func() bool {
		answer := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "s", "ttl": 3600})
		if answer.Status != http.StatusCreated {
			return false
		}
		answer.Into(t, &anew)
		return true
	})
	assert.Check(t, anew.ID != made.ID)
	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+made.ID, harness.Token, nil), http.StatusNotFound, "SB013")
	a.Restart()
	assert.Equal(t, create(t, a, harness.Token, map[string]any{"session_id": "s"}).ID, anew.ID)
	assert.Equal(t, create(t, b, harness.Token, map[string]any{"session_id": "kept"}).ID, kept.ID, "nobody has asked for that one meanwhile")
	await(t, a, "what nobody has any more is destroyed", func() bool { return len(inCloud(t, a)) == 1 })
}

// One stands still for longer than its lease while another takes over a session of it: it ends
// when it goes on.
func TestABrokerThatStoodStillEnds(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	all := peers(t, 2, cloudConfig, map[string]string{"mock_cloud": mockPlugin})
	a, b := all[0], all[1]
	made := create(t, a, harness.Token, map[string]any{"session_id": "s", "ttl": 3600})
	a.Suspend()
	await(t, b, "the session begins anew", func() bool {
		answer := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "s", "ttl": 3600})
		return answer.Status == http.StatusCreated
	})
	assert.NilError(t, syscall.Kill(a.PID, syscall.SIGCONT))
	<-a.Ended()
	assert.Check(t, is.Contains(a.Log(), "another process has taken over the state of this broker"))
	a.WaitGone()
	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+made.ID, harness.Token, nil), http.StatusNotFound, "SB013")
}
