package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// asking is code that says what it gets of an address through the way out that it is told of.
func asking(address string) string {
	return fmt.Sprintf(`
import os, urllib.request, urllib.error
os.environ.pop("no_proxy", None); os.environ.pop("NO_PROXY", None)
try:
    print(urllib.request.urlopen(%q, timeout=60).read().decode())
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
except Exception as e:
    print(type(e).__name__)
`, address)
}

func TestANetworkFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	arrived, held := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "reached "+r.URL.Path)
		if r.URL.Path == "/hold" {
			_ = http.NewResponseController(w).Flush()
			close(arrived)
			<-r.Context().Done()
			close(held)
		}
	}))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":")+1:]
	tenants := strings.Replace(harness.Tenants, `{ token_sha256 = ["80`, "{\n  token_sha256 = [\"80", 1)
	tenants = strings.Replace(tenants, "\"] }\ntenant \"rival\"", "\"]\n"+fmt.Sprintf(`  network {
    allow "127.0.0.1" {
      ports   = [%s]
      private = true
    }
    allow "*.example.com" {}
  }
}
tenant "rival"`, port), 1)
	assert.Assert(t, tenants != harness.Tenants)
	b := harness.Start(t, harness.Options{Config: tenants + fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 1\n}\n", binaries.Runsc(t))})

	run := func(id, code string) string {
		t.Helper()
		var e harness.Execution
		b.Do(http.MethodPost, "/api/v1/instances/"+id+"/execute", harness.Token, map[string]any{"language": "python", "code": code}).Into(t, &e)
		assert.Equal(t, e.Status, "succeeded", "%+v", e)
		return e.Stdout
	}
	create := func(network any) string {
		t.Helper()
		var made live
		answer := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"language": "python", "network": network})
		assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
		answer.Into(t, &made)
		return made.ID
	}
	address := server.URL
	e := b.Execute(t, map[string]any{"language": "python", "code": asking(address + "/one")})
	assert.Equal(t, e.Stdout, "reached /one\n", "what the tenant may reach is what its executions reach: %+v", e)
	var other harness.Execution
	b.Do(http.MethodPost, "/api/v1/execute", harness.OtherToken, map[string]any{"language": "python", "code": asking(address + "/rival")}).Into(t, &other)
	assert.Equal(t, other.Stdout, "URLError\n", "another tenant has no network")

	// A creation takes a part of it, or nothing, and never more.
	none := create(map[string]any{"none": true})
	assert.Equal(t, run(none, asking(address)), "URLError\n")
	narrow := create(map[string]any{"allow": []any{map[string]any{"host": "a.example.com"}}})
	assert.Check(t, is.Contains(run(narrow, asking(address)), "403 sandbox broker: "))
	p := harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{
		"language": "python", "network": map[string]any{"allow": []any{map[string]any{"host": "evil.example"}}},
	}), http.StatusForbidden, "SB012")
	assert.Equal(t, p.Field, "network.allow.0")
	assert.Equal(t, harness.Refused(t, b.Do(http.MethodPut, "/api/v1/instances/"+narrow+"/network", harness.Token, map[string]any{
		"allow": []any{map[string]any{"host": "*"}},
	}), http.StatusForbidden, "SB012").Field, "network.allow.0")
	if os.Geteuid() == 0 { // else runsc makes no checkpoints
		copiesReachNoMore(t, b, none, func(id string) { assert.Equal(t, run(id, asking(address)), "URLError\n") })
		copiesReachNoMore(t, b, narrow, func(id string) { assert.Check(t, is.Contains(run(id, asking(address)), "403 sandbox broker: ")) })
	}
	_, err := b.API().SetNetwork(t.Context(), narrow, client.Network{})
	assert.NilError(t, err)
	assert.Equal(t, run(narrow, asking(address+"/wide")), "reached /wide\n", "all of it again")

	// What the configuration allows no more is cut off where it is.
	whole := create(nil)
	answered := make(chan harness.Answer, 1)
	go func() {
		answered <- b.Do(http.MethodPost, "/api/v1/instances/"+whole+"/execute", harness.Token, map[string]any{"language": "python", "code": asking(address + "/hold")})
	}()
	<-arrived
	rewrite(t, b, with("ports   = ["+port+"]", "ports   = [1]"))
	<-held
	assert.Equal(t, (<-answered).Status, http.StatusOK)
	assert.Check(t, is.Contains(run(whole, asking(address)), "403 sandbox broker: "))
	assert.Check(t, is.Contains(run(narrow, asking(address)), "403 sandbox broker: "))

	// Each connection has its line.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, text := auditLines(t, auditDir(b))
		for _, want := range []string{`"operation":"reach_host"`, `"verdict":"allowed"`, `"verdict":"refused"`, `"verdict":"cut"`, `"operation":"set_network","cause":"reload"`, `"operation":"set_network","cause":"request"`} {
			if !strings.Contains(text, want) {
				return poll.Continue("no %s", want)
			}
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// copiesReachNoMore has a fork of an instance with a narrowed network, and what goes on from a
// snapshot of it, checked.
func copiesReachNoMore(t *testing.T, b *harness.Broker, id string, check func(id string)) {
	t.Helper()
	answer := b.Do(http.MethodPost, "/api/v1/instances/"+id+"/fork", harness.Token, map[string]any{"count": 1})
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	var fork client.Fork
	answer.Into(t, &fork)
	check(fork.Instances[0].ID)
	destroyAfter(t, b, fork.Instances[0].ID)
	kept := keep(t, b, id, map[string]any{})
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{
		"snapshot": kept.ID, "network": map[string]any{"allow": []any{map[string]any{"host": "b.example.com"}}},
	}), http.StatusForbidden, "SB012")
	copied := create(t, b, harness.Token, map[string]any{"snapshot": kept.ID})
	check(copied.ID)
	destroyAfter(t, b, copied.ID)
}
