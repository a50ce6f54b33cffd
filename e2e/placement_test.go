package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// placed are brokers of which each says that of its sandboxes.
func placed(t *testing.T, says ...string) []*harness.Broker {
	t.Helper()
	var configs []string
	for _, say := range says {
		configs = append(configs, strings.Replace(cloudConfig, "persist = true\n", "persist = true\n"+say, 1)+adminBlock())
	}
	all := peersOf(t, configs, "  zone = \"a\"\n", map[string]string{"mock_cloud": mockPlugin})
	for _, b := range all {
		await(t, b, "its provider has said what it has", func() bool {
			return strings.Contains(string(b.Do(http.MethodGet, "/api/v1/providers", harness.Token, nil).Body), `"pid"`)
		})
		drains(t, b, false) // by which the others hear it at once
	}
	return all
}

// has says how many instances a broker has itself.
func has(t *testing.T, b *harness.Broker) int {
	t.Helper()
	return len(inCloud(t, b))
}

// drains has a broker drain or not, and returns how many instances it has.
func drains(t *testing.T, b *harness.Broker, drain bool) int {
	t.Helper()
	var answer client.AdminDrainAnswer
	got := b.Do(http.MethodPut, "/api/admin/sandbox/drain", adminToken, map[string]any{"draining": drain})
	assert.Equal(t, got.Status, http.StatusOK, "%s", got.Body)
	got.Into(t, &answer)
	assert.Equal(t, answer.Data.Draining, drain)
	return answer.Data.Instances
}

// New sessions go where there is a warm sandbox and room.
func TestANewSessionGoesWhereThereIsAWarmSandbox(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	all := placed(t, "warm = 1\nroom = 3\n", "warm = 2\nroom = 3\n", "room = 3\n")
	a, b, c := all[0], all[1], all[2]
	made := create(t, a, harness.Token, map[string]any{"session_id": "first", "ttl": 600})
	assert.Equal(t, has(t, a), 1, "it is warm where it was asked for")
	create(t, a, harness.Token, map[string]any{"session_id": "second", "ttl": 600})
	assert.Equal(t, has(t, b), 1, "the next warm one is there")
	again := create(t, c, harness.Token, map[string]any{"session_id": "first"})
	assert.Equal(t, again.ID, made.ID, "what there is stays")
	// The last warm one is there too; behind that they stay as long as there is room.
	for range 3 {
		create(t, a, harness.Token, map[string]any{"ttl": 600})
	}
	assert.Equal(t, has(t, a), 3)
	assert.Equal(t, has(t, b), 2)
	// Of those that have room by now, the one with more gets the next ones.
	for range 4 {
		create(t, a, harness.Token, map[string]any{"ttl": 600})
	}
	assert.Equal(t, has(t, b)+has(t, c), 6)
	assert.Equal(t, has(t, a), 3)
}

// One that drains passes new sessions on, also those of executions, and takes them where there
// is nobody else.
func TestABrokerThatDrainsLeavesNewSessionsToOthers(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	all := placed(t, "room = 50\n", "room = 50\n")
	a, b := all[0], all[1]
	old := create(t, a, harness.Token, map[string]any{"session_id": "old", "ttl": 600})
	assert.Equal(t, drains(t, a, true), 1)
	assert.Equal(t, a.Do(http.MethodGet, "/readyz", "", nil).Status, http.StatusServiceUnavailable)
	assert.Equal(t, b.Do(http.MethodGet, "/readyz", "", nil).Status, http.StatusOK)

	create(t, a, harness.Token, map[string]any{"session_id": "new", "ttl": 600})
	create(t, a, harness.Token, map[string]any{"ttl": 600})
	a.Execute(t, map[string]any{"language": "mock", "code": `{"stdout": "once"}`})
	a.Execute(t, map[string]any{"session_id": "ran", "language": "mock", "code": `{"stdout": "kept"}`})
	streams := func(session string) {
		t.Helper()
		s, err := a.Stream(t.Context(), "/api/v1/execute", map[string]any{"session_id": session, "language": "mock", "code": `{"stdout": "streamed"}`})
		assert.NilError(t, err)
		s.End(t)
		assert.Check(t, is.Equal(string(s.Stdout), "streamed"))
	}
	streams("streamed")
	assert.Equal(t, has(t, a), 1)
	await(t, b, "those that were made for one execution are gone", func() bool { return has(t, b) == 4 })
	assert.Equal(t, create(t, b, harness.Token, map[string]any{"session_id": "old"}).ID, old.ID, "what it has goes on")
	keyedAnswer := keyed(a, "k", "/api/v1/instances", map[string]any{"ttl": 600})
	assert.Equal(t, keyedAnswer.Status, http.StatusCreated, "%s", keyedAnswer.Body)
	assert.Equal(t, has(t, a), 2, "a key is with the broker that was asked with it")

	// A restart changes nothing about it.
	a.Kill()
	a.WaitGone()
	a.Restart()
	assert.Equal(t, drains(t, a, true), 2)
	// The only other one is away: it takes them itself.
	b.Kill()
	b.WaitGone()
	create(t, a, harness.Token, map[string]any{"ttl": 600})
	streams("streamed-here")
	assert.Equal(t, has(t, a), 4)
	drains(t, a, false)
	assert.Equal(t, a.Do(http.MethodGet, "/readyz", "", nil).Status, http.StatusOK)
}

// An operator takes a broker out under load, and no request fails.
func TestABrokerIsTakenOutWithoutARefusedCall(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	all := placed(t, "room = 100\n", "room = 100\n", "room = 100\n")
	a := all[0]
	// A load balancer in front has these; who changes that waits for the end of what goes on.
	var balancer sync.RWMutex
	behind := all
	var asked, worked atomic.Int64
	stop := make(chan struct{})
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				balancer.RLock()
				asked.Add(1)
				if usesASession(t, behind, n+i, fmt.Sprintf("s%d-%d", n, i)) {
					worked.Add(1)
				}
				balancer.RUnlock()
			}
		})
	}
	busy := func(more int64) {
		t.Helper()
		until := worked.Load() + more
		await(t, a, "the load goes on", func() bool { return worked.Load() >= until })
	}
	busy(60)
	drains(t, a, true)
	busy(60)
	await(t, a, "its sessions have ended", func() bool {
		var answer client.AdminDrainAnswer
		a.Do(http.MethodGet, "/api/admin/sandbox/drain", adminToken, nil).Into(t, &answer)
		return answer.Data.Draining && answer.Data.Instances == 0
	})
	balancer.Lock()
	behind = all[1:] // its check has seen that it is not ready
	balancer.Unlock()
	assert.Equal(t, a.Stop(), 0)
	busy(60)
	close(stop)
	group.Wait()
	assert.Equal(t, worked.Load(), asked.Load())
}

// usesASession makes a session, runs something in it through all brokers that there are, and
// ends it. It reports whether all of that went well.
func usesASession(t *testing.T, through []*harness.Broker, n int, session string) (well bool) {
	at := func(i int) *harness.Broker { return through[(n+i)%len(through)] }
	made := at(0).Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": session, "ttl": 600})
	if !assert.Check(t, is.Equal(made.Status, http.StatusCreated), "%v %s", made.Err, made.Body) {
		return false
	}
	var i createdInstance
	made.Into(t, &i)
	well = true
	for k := range through {
		ran := at(k+1).Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"session_id": session, "language": "mock", "code": `{"delay": "20ms", "stdout": "x"}`})
		well = assert.Check(t, is.Equal(ran.Status, http.StatusOK), "%v %s", ran.Err, ran.Body) && well
	}
	once := at(1).Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "mock", "code": `{"stdout": "x"}`})
	well = assert.Check(t, is.Equal(once.Status, http.StatusOK), "%v %s", once.Err, once.Body) && well
	ended := at(2).Do(http.MethodDelete, "/api/v1/instances/"+i.ID, harness.Token, nil)
	return assert.Check(t, is.Equal(ended.Status, http.StatusNoContent), "%v %s", ended.Err, ended.Body) && well
}
