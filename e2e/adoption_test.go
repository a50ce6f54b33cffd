package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
)

// effects are the calls that one broker makes at the API of a cloud, but for those that only look.
type effects struct {
	mu  sync.Mutex
	all []string
}

func (e *effects) said() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.all...)
}

// watched is the address of an API at which the effects of who calls it are noted.
func watched(t *testing.T, api string, transport http.RoundTripper) (address string, seen *effects) {
	t.Helper()
	target, err := url.Parse(api)
	assert.NilError(t, err)
	seen = &effects{}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(target)
		p.Out.Host = p.In.Host // signatures are for what was asked
	}, Transport: transport}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			seen.mu.Lock()
			seen.all = append(seen.all, r.Method+" "+r.URL.Path)
			seen.mu.Unlock()
		}
		_ = http.NewResponseController(w).EnableFullDuplex() // the body may end after the answer has begun
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, seen
}

// adoptionBound is how long it may take until others have what a dead broker had. It takes some ten
// seconds, its lease and the time in which it could come back; the test prints how long.
const adoptionBound = time.Minute

// awaitHere waits until a broker answers for an instance, with a file that was written into it
// and the variable of it that says whose it is, if it was given one.
func awaitHere(t *testing.T, b *harness.Broker, id, content string) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		answer := b.Do(http.MethodPost, "/api/v1/instances/"+id+"/execute", harness.Token, map[string]any{"language": "bash", "code": "echo $(cat /workspace/file) $WHOSE"})
		switch {
		case answer.Status != http.StatusOK:
			return poll.Continue("%d %s\n%s", answer.Status, answer.Body, b.Log())
		case !strings.Contains(string(answer.Body), content):
			return poll.Error(fmt.Errorf("%s", answer.Body))
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
}

// account is one that two brokers have at a cloud.
type account struct {
	plugin string
	// block is that of the provider, for an address of the API.
	block     func(api string) string
	api       string
	sandboxes func() []string
	// transport reaches the API; nil for the usual one.
	transport http.RoundTripper
}

// there are the sandboxes that there are, sorted.
func (a account) there() []string { return slices.Sorted(slices.Values(a.sandboxes())) }

// accounts are at the clouds of which a broker goes on with what another one had.
var accounts = map[string]func(t *testing.T) account{
	"e2b": func(t *testing.T) account {
		server := fakeE2B(t)
		return account{plugin: "e2b", block: func(api string) string {
			return fmt.Sprintf("provider \"e2b\" {\n  api_key = %q\n  api_url = %q\n  sandbox_url = %q\n}\n", e2bfake.DefaultAPIKey, api, server.SandboxURL)
		}, api: server.APIURL, sandboxes: server.Sandboxes}
	},
	"daytona": func(t *testing.T) account {
		server := fakeDaytona(t)
		return account{plugin: "daytona", block: func(api string) string {
			return fmt.Sprintf("provider \"daytona\" {\n  api_key = %q\n  api_url = %q\n}\n", daytonafake.DefaultAPIKey, api)
		}, api: server.APIURL, sandboxes: server.Sandboxes}
	},
	"aliyun": func(t *testing.T) account {
		cloud := fakeAliyun(t)
		return account{plugin: "aliyun", block: func(api string) string { return aliyunBlock(cloud, api) }, api: cloud.URL(), sandboxes: cloud.Living}
	},
}

// two starts two brokers with the account. What the first one does there is noted.
func (a account) two(t *testing.T) (first, second *harness.Broker, seen *effects) {
	t.Helper()
	api, seen := watched(t, a.api, a.transport)
	configs := []string{harness.Tenants + a.block(api), harness.Tenants + a.block(a.api)}
	all := peersOf(t, configs, "", map[string]string{a.plugin: filepath.Join(binaries.Dir(t), "plugins", a.plugin)})
	return all[0], all[1], seen
}

// A broker is killed: what it had in a cloud goes on through another one, and it leaves that alone
// when it comes back.
func TestTheInstancesOfADeadBrokerAreAdopted(t *testing.T) {
	t.Parallel()
	for name, open := range accounts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			instancesAreAdopted(t, open(t))
		})
	}
}

func instancesAreAdopted(t *testing.T, cloud account) {
	a, b, _ := cloud.two(t)
	var ids []string
	for n := range 4 {
		session := fmt.Sprint("s", n)
		made := create(t, a, harness.Token, map[string]any{"session_id": session, "ttl": 600, "env": map[string]string{"WHOSE": session}})
		a.Execute(t, map[string]any{"language": "bash", "code": "echo of > /workspace/file", "session_id": session})
		ids = append(ids, made.ID)
	}
	before := cloud.there()
	assert.Assert(t, is.Len(before, 4))
	a.Kill()
	a.WaitGone()
	died := time.Now()
	// One is asked for at once, the others are adopted though nobody asks.
	awaitHere(t, b, ids[0], "of s0")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		for _, id := range ids {
			if answer := b.Do(http.MethodGet, "/api/v1/instances?limit=10", harness.Token, nil); !strings.Contains(string(answer.Body), id) {
				return poll.Continue("%s\n%s", answer.Body, b.Log())
			}
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	took := time.Since(died)
	t.Logf("adopted after %s", took)
	assert.Check(t, took < adoptionBound, "%s", took)
	for n, id := range ids {
		awaitHere(t, b, id, fmt.Sprint("of s", n))
		assert.Equal(t, create(t, b, harness.Token, map[string]any{"session_id": fmt.Sprint("s", n)}).ID, id)
	}
	assert.DeepEqual(t, cloud.there(), before)

	// It comes back with what it had, and passes on what is not its own any more.
	a.Restart()
	for n, id := range ids {
		awaitHere(t, a, id, fmt.Sprint("of s", n))
		assert.Equal(t, create(t, a, harness.Token, map[string]any{"session_id": fmt.Sprint("s", n)}).ID, id)
	}
	assert.DeepEqual(t, cloud.there(), before)

	// It goes on through the restart of who has it now, and may be destroyed there.
	b.Kill()
	b.WaitGone()
	b.Restart()
	awaitHere(t, b, ids[1], "of s1")
	assert.Equal(t, a.Do(http.MethodDelete, "/api/v1/instances/"+ids[0], harness.Token, nil).Status, http.StatusNoContent)
	assert.Check(t, is.Len(cloud.sandboxes(), 3))

	// The other way about.
	b.Kill()
	b.WaitGone()
	awaitHere(t, a, ids[1], "of s1")
	assert.Check(t, is.Len(cloud.sandboxes(), 3))
}

// A broker stands still for longer than its lease, and its plugins do not: when it goes on it
// does nothing to what another one has adopted.
func TestABrokerThatStoodStillDoesNothingToWhatWasAdopted(t *testing.T) {
	t.Parallel()
	for name, open := range accounts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nothingIsDone(t, open(t))
		})
	}
}

func nothingIsDone(t *testing.T, cloud account) {
	a, b, seen := cloud.two(t)
	made := create(t, a, harness.Token, map[string]any{"session_id": "s", "ttl": 600})
	a.Execute(t, map[string]any{"language": "bash", "code": "echo mine > /workspace/file", "session_id": "s"})
	before := cloud.there()
	a.Suspend()
	awaitHere(t, b, made.ID, "mine")
	adopted := len(seen.said())
	assert.NilError(t, syscall.Kill(a.PID, syscall.SIGCONT))
	<-a.Ended()
	assert.Check(t, is.Contains(a.Log(), "another process has taken over the state of this broker"))
	a.WaitGone()
	awaitHere(t, b, made.ID, "mine")
	assert.Check(t, is.DeepEqual(seen.said()[adopted:], []string{}))
	assert.DeepEqual(t, cloud.there(), before)
}

// A session has an instance at each of two clouds: who asks for one of them has the session with
// both.
func TestASessionWithTwoCloudsIsAdoptedAsAWhole(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	plugins, config := map[string]string{}, harness.Tenants+"providers {\n  active = \"e2b\"\n}\n"
	var all []account
	for _, name := range []string{"e2b", "daytona"} {
		cloud := accounts[name](t)
		all = append(all, cloud)
		config += cloud.block(cloud.api)
		plugins[cloud.plugin] = filepath.Join(binaries.Dir(t), "plugins", cloud.plugin)
	}
	brokers := peersOf(t, []string{config, config}, "", plugins)
	a, b := brokers[0], brokers[1]
	var ids []string
	for _, cloud := range all {
		made := create(t, a, harness.Token, map[string]any{"session_id": "s", "provider": cloud.plugin, "ttl": 600})
		a.Execute(t, map[string]any{"language": "bash", "code": "echo at " + cloud.plugin + " > /workspace/file", "session_id": "s", "provider": cloud.plugin})
		ids = append(ids, made.ID)
	}
	assert.Assert(t, ids[0] != ids[1])
	a.Kill()
	a.WaitGone()
	awaitHere(t, b, ids[0], "at e2b")
	awaitHere(t, b, ids[1], "at daytona")
	a.Restart()
	for n, cloud := range all {
		awaitHere(t, a, ids[n], "at "+cloud.plugin)
		assert.Equal(t, create(t, a, harness.Token, map[string]any{"session_id": "s", "provider": cloud.plugin}).ID, ids[n])
		assert.Check(t, is.Len(cloud.sandboxes(), 1))
	}
}
