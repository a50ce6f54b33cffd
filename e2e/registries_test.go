package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func TestATemplateOfAPrivateRegistry(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const wrong, right = "a-password-that-is-wrong", "a-password-that-is-right"
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var private atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, password, _ := req.BasicAuth(); private.Load() && password != right {
			w.Header().Set("Www-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, req)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	tag := push(t, host, "private\n")
	private.Store(true)
	b := harness.Start(t, harness.Options{Config: harness.Tenants + adminBlock() + fmt.Sprintf(`
provider "self_managed" {
  runsc     = %q
  pool_size = 0
  registry {
    host     = %q
    username = "builder"
    password = %q
  }
}
template "data" { from = %q }
`, binaries.Runsc(t), host, wrong, tag)})
	var seen []string
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		var list client.AdminTemplateList
		answer := b.Do(http.MethodGet, adminAPI+"/templates", adminToken, nil)
		answer.Into(t, &list)
		if len(list.Data) == 1 && list.Data[0].State == "failed" {
			seen = append(seen, string(answer.Body))
			return poll.Success()
		}
		return poll.Continue("%s", answer.Body)
	}, poll.WithTimeout(time.Minute))
	assert.Check(t, is.Contains(seen[0], "the registry "+host+" refuses the login"))

	file, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(b.ConfigFile(), bytes.ReplaceAll(file, []byte(wrong), []byte(right)), 0o600))
	assert.Equal(t, b.Do(http.MethodPost, adminAPI+"/reload", adminToken, nil).Status, http.StatusOK)
	readyTemplate(t, b, "data", nil)
	e := b.Execute(t, map[string]any{"template": "data", "language": "bash", "code": "cat /srv/greeting"})
	assert.Check(t, is.Equal(e.Stdout, "private\n"), "%+v", e)

	_, audited := auditLines(t, auditDir(b))
	seen = append(seen, b.Log(), audited)
	for _, path := range []string{"/templates", "/providers"} {
		seen = append(seen, string(b.Do(http.MethodGet, adminAPI+path, adminToken, nil).Body))
	}
	for _, text := range seen {
		assert.Check(t, !strings.Contains(text, wrong) && !strings.Contains(text, right))
	}
}
