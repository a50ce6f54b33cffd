package e2b_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

func TestTheSDKSaysWhatASandboxReaches(t *testing.T) {
	dir := client(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "reached") }))
	defer server.Close()
	at, err := url.Parse(server.URL)
	assert.NilError(t, err)
	b := frontdoor.Real(t, door, func(o *harness.Options) {
		const end = "\"] }\ntenant \"rival\""
		assert.Assert(t, strings.Contains(o.Config, end))
		o.Config = strings.Replace(o.Config, `tenant "acme"  { `, "tenant \"acme\" {\n  ", 1)
		o.Config = strings.Replace(o.Config, end, fmt.Sprintf("\"]\n  network {\n    allow \"127.0.0.1\" {\n      ports   = [%s]\n      private = true\n    }\n    allow \"*.example.com\" {}\n  }\n}\ntenant \"rival\"", at.Port()), 1)
	})
	cmd := exec.CommandContext(t.Context(), "node", "network.mjs", b.URL+"/e2b", harness.Token, at.Port())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "E2B_VALIDATE_API_KEY=false") // the harness's token is none of E2B's form
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", out)
}
