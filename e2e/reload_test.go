package e2e_test

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// rewrite replaces the broker's configuration by a rename, as editors do.
func rewrite(t testing.TB, b *harness.Broker, change func(text string) string) {
	t.Helper()
	text, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(b.ConfigFile()+".new", []byte(change(string(text))), 0o644))
	assert.NilError(t, os.Rename(b.ConfigFile()+".new", b.ConfigFile()))
}

// with returns a change that puts one text in the place of another.
func with(old, now string) func(string) string {
	return func(text string) string { return strings.Replace(text, old, now, 1) }
}

func awaitLog(t testing.TB, b *harness.Broker, text string, times int) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if strings.Count(b.Log(), text) < times {
			return poll.Continue("no %q yet\n%s", text, b.Log())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
}

const (
	inForce = "a new configuration is in force"
	refused = "the new configuration is refused"
)

func TestATenantIsAddedAndRemovedWhileTheBrokerRuns(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	const token = "token-of-late"
	works := map[string]any{"language": "mock", "code": `{"stdout": "works"}`}
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", token, works), http.StatusUnauthorized, "SB011")
	block := fmt.Sprintf("tenant \"late\" { token_sha256 = [%q] }\n", fmt.Sprintf("%x", sha256.Sum256([]byte(token))))
	rewrite(t, b, func(text string) string { return text + block })
	awaitLog(t, b, inForce, 1)
	assert.Check(t, is.Contains(b.Log(), `change="tenants added: late"`))
	assert.Equal(t, b.Do(http.MethodPost, "/api/v1/execute", token, works).Status, http.StatusOK)
	rewrite(t, b, with(block, ""))
	awaitLog(t, b, inForce, 2)
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", token, works), http.StatusUnauthorized, "SB011")
}

func TestABrokenConfigurationChangesNothing(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	pid := b.Plugin("mock")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer taken.Close()
	original, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	tried := 0
	for name, c := range map[string]struct {
		change func(string) string
		says   string
	}{
		"syntax":                      {with("provider", "provider {{"), "sandbox.hcl:"},
		"an unknown setting":          {with("state =", "stat ="), "Unknown setting"},
		"a wrong type":                {with("plugin_dir =", "plugin_dir = 5 #"), "plugin_dir"},
		"out of range":                {func(s string) string { return s + "limits { max_timeout = \"-1s\" }\n" }, "max_timeout"},
		"a plugin that is missing":    {func(s string) string { return s + "provider \"absent\" {}\nproviders { active = \"mock\" }\n" }, "absent"},
		"a setting the plugin lacks":  {with("provider \"mock\" {", "provider \"mock\" {\n  no_such = 1"), "no_such"},
		"settings the plugin refuses": {with("provider \"mock\" {", "provider \"mock\" {\n  on_configure = \"{\\\"fail\\\":\\\"SB002\\\",\\\"field\\\":\\\"secret\\\",\\\"message\\\":\\\"is a bad key\\\"}\""), "is a bad key"},
		"a port that is taken":        {with("127.0.0.1:0", taken.Addr().String()), "another program listens on"},
		"nothing at all":              {func(string) string { return "" }, "configuration is empty"},
		"what needs a restart":        {with("./state", "./state2"), "Needs a restart"},
	} {
		before := b.Log()
		rewrite(t, b, c.change)
		tried++
		awaitLog(t, b, refused, tried)
		awaitLog(t, b, c.says, strings.Count(before, c.says)+1) // a line of its own
		assert.Equal(t, b.Plugin("mock"), pid, name)
		assert.Equal(t, b.Execute(t, map[string]any{"language": "mock", "code": `{"stdout": "works"}`}).Stdout, "works", name)
		rewrite(t, b, func(string) string { return string(original) })
	}
	assert.Equal(t, strings.Count(b.Log(), inForce), 0)
	rewrite(t, b, with("provider \"mock\" {", "provider \"mock\" {\n  secret = \"another\""))
	awaitLog(t, b, inForce, 1)
	awaitLog(t, b, "the earlier process of the provider has ended", 1)
	assert.Check(t, b.Plugin("mock") != pid)
}

// Settings change under load: no request fails, sessions stay where they are.
func TestProvidersChangeUnderLoad(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startMock(t, "")
	stop := make(chan struct{})
	var load sync.WaitGroup
	var done atomic.Int64
	for i := range 20 {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				request := map[string]any{"language": "mock", "code": `{"stdout": "works"}`}
				if i%2 == 0 {
					request["session_id"] = fmt.Sprintf("s%d-%d", i, n/20)
				}
				answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request)
				if !assert.Check(t, is.Equal(answer.Status, http.StatusOK), "%s %v", answer.Body, answer.Err) {
					return
				}
				done.Add(1)
			}
		})
	}
	const times = 20
	for n := range times {
		at := done.Load()
		rewrite(t, b, func(text string) string {
			lines := strings.Split(text, "\n")
			for i, line := range lines {
				if strings.HasPrefix(line, "  secret = ") {
					lines = append(lines[:i], lines[i+1:]...)
					break
				}
			}
			return strings.Replace(strings.Join(lines, "\n"), "provider \"mock\" {", fmt.Sprintf("provider \"mock\" {\n  secret = \"number %d\"", n), 1)
		})
		awaitLog(t, b, inForce, n+1)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if done.Load() < at+50 {
				return poll.Continue("%d", done.Load()-at)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	}
	close(stop)
	load.Wait()
	destroyAll(t, b)
	awaitPlugins(t, b, "mock", 0)
}

func TestTheBrokerMovesToAnotherAddress(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	address := free.Addr().String()
	assert.NilError(t, free.Close())
	old := b.URL
	rewrite(t, b, with("127.0.0.1:0", address))
	awaitLog(t, b, inForce, 1)
	b.URL = "http://" + address
	assert.Equal(t, b.Execute(t, map[string]any{"language": "mock", "code": `{"stdout": "works"}`}).Stdout, "works")
	_, err = net.Dial("tcp", strings.TrimPrefix(old, "http://"))
	assert.ErrorContains(t, err, "refused")
}

func TestASignalReloads(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	assert.NilError(t, syscall.Kill(b.PID, syscall.SIGHUP))
	awaitLog(t, b, "the configuration was read again and is the same", 1)
}
