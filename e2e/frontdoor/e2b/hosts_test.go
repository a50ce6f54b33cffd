package e2b_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// The SDKs find the API, envd, the code interpreter and programs by a domain alone, over
// HTTPS, as with E2B.
func TestTheSDKsKnowADomainAlone(t *testing.T) {
	dir, authority := client(t), certtest.NewAuthority(t)
	b := frontdoor.Real(t, door+"tls {\n  cert_file = \"tls.crt\"\n  key_file  = \"tls.key\"\n}\n", func(o *harness.Options) {
		o.TLS = &tls.Config{RootCAs: authority.Pool()}
		o.Prepare = func(dir string) {
			authority.Issue("the broker", func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "*.e2b.test") }).Write(t, dir)
		}
	})
	trusted := filepath.Join(t.TempDir(), "authority.pem")
	assert.NilError(t, os.WriteFile(trusted, authority.PEM, 0o600))
	port := b.URL[strings.LastIndex(b.URL, ":")+1:]
	text, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	with := strings.Replace(string(text), door, "front_door \"e2b\" {\n  domain = \"e2b.test:"+port+"\"\n}\n", 1)
	assert.NilError(t, os.WriteFile(b.ConfigFile(), []byte(with), 0o600))
	api := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}}
	t.Cleanup(api.CloseIdleConnections)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.URL+"/health", nil)
		if err != nil {
			return poll.Error(err)
		}
		req.Host = "api.e2b.test"
		resp, err := api.Do(req)
		if err != nil {
			return poll.Error(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			return poll.Continue("%s", resp.Status)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	for _, sdk := range []string{"e2b", "e2b-before"} {
		t.Run(sdk, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "node", "hosts.mjs", sdk)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "E2B_VALIDATE_API_KEY=false", "E2B_API_KEY="+harness.Token, "E2B_DOMAIN=e2b.test:"+port, "NODE_EXTRA_CA_CERTS="+trusted)
			out, err := cmd.CombinedOutput()
			assert.NilError(t, err, "%s", out)
			assert.Equal(t, string(out), "done\n")
		})
	}
}
