package control_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/sign"
)

const role = "acs:ram::1234567890123456:role/sandbox-broker"

// tokens is Aliyun's service of tokens: it gives temporary keys that are good for a time.
func tokens(t *testing.T, lifetime time.Duration) (host string, asked *atomic.Int32, last *atomic.Pointer[url.Values]) {
	t.Helper()
	asked, last = &atomic.Int32{}, &atomic.Pointer[url.Values]{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // an empty form fails the test
		last.Store(&r.Form)
		if r.Form.Get("RoleArn") != role {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"Code":"NoPermission","Message":"not this role"}`)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Credentials": map[string]string{
			"AccessKeyId": fmt.Sprintf("STS.Temporary%d", asked.Add(1)), "AccessKeySecret": "temporary secret", "SecurityToken": "temporary token",
			"Expiration": time.Now().Add(lifetime).UTC().Format(time.RFC3339),
		}})
	}))
	t.Cleanup(server.Close)
	// The SDK takes no other way to trust a server.
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	transport := http.DefaultTransport.(*http.Transport)
	before := transport.TLSClientConfig
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	t.Cleanup(func() { transport.TLSClientConfig = before })
	return strings.TrimPrefix(server.URL, "https://"), asked, last
}

var key = sign.Credentials{AccessKeyID: "LTAI5tExample", AccessKeySecret: "a secret"}

func TestAKeyIsTakenAsItIs(t *testing.T) {
	for _, k := range []sign.Credentials{key, {AccessKeyID: "STS.N", AccessKeySecret: "s", SecurityToken: "t"}} {
		c, err := control.NewCredentials(control.Source{Way: control.FromKey, Key: k})
		assert.NilError(t, err)
		got, err := c.Get(t.Context())
		assert.NilError(t, err)
		assert.Equal(t, got, k)
	}
}

func TestARoleIsTakenOnceUntilItExpires(t *testing.T) {
	for name, test := range map[string]struct {
		lifetime time.Duration
		want     int32
	}{"it is good for an hour": {time.Hour, 1}, "it expires in a minute": {time.Minute, 3}} {
		t.Run(name, func(t *testing.T) {
			host, asked, last := tokens(t, test.lifetime)
			c, err := control.NewCredentials(control.Source{Way: control.FromKey, Key: key, RoleARN: role, Endpoint: host})
			assert.NilError(t, err)
			for range 3 {
				got, err := c.Get(t.Context())
				assert.NilError(t, err)
				assert.Equal(t, got.SecurityToken, "temporary token")
			}
			assert.Equal(t, asked.Load(), test.want)
			assert.Equal(t, last.Load().Get("AccessKeyId"), key.AccessKeyID)
			assert.Equal(t, last.Load().Get("RoleSessionName"), "sandbox-broker")
		})
	}
}

func TestATokenOfOIDCIsReadFromItsFile(t *testing.T) {
	host, _, last := tokens(t, time.Hour)
	file := filepath.Join(t.TempDir(), "token")
	assert.NilError(t, os.WriteFile(file, []byte("of the pod"), 0o600))
	c, err := control.NewCredentials(control.Source{Way: control.FromOIDC, RoleARN: role, OIDCProviderARN: "acs:ram::1:oidc-provider/p", OIDCTokenFile: file, Endpoint: host})
	assert.NilError(t, err)
	got, err := c.Get(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, got.AccessKeyID, "STS.Temporary1")
	assert.Equal(t, last.Load().Get("OIDCToken"), "of the pod")
}

func TestTheChainOfTheSDKReadsItsVariables(t *testing.T) {
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "LTAI5tOfTheEnvironment")
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "s")
	c, err := control.NewCredentials(control.Source{Way: control.FromChain})
	assert.NilError(t, err)
	got, err := c.Get(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, got.AccessKeyID, "LTAI5tOfTheEnvironment")
}

func TestARefusalHasNoKeysInIt(t *testing.T) {
	host, _, _ := tokens(t, time.Hour)
	for name, endpoint := range map[string]string{"the service refuses": host, "nobody is there": "127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			c, err := control.NewCredentials(control.Source{
				Way: control.FromKey, Key: sign.Credentials{AccessKeyID: "STS.Ours", AccessKeySecret: "our secret", SecurityToken: "our-token"}, RoleARN: role + "s", Endpoint: endpoint,
			})
			assert.NilError(t, err)
			_, err = c.Get(t.Context())
			assert.ErrorContains(t, err, "fetch credentials")
			for _, secret := range []string{"STS.Ours", "our secret", "our-token", "Signature="} {
				assert.Check(t, !strings.Contains(err.Error(), secret), "%v", err)
			}
		})
	}
}

func TestWhatIsMissingIsSaidBeforeAnythingIsFetched(t *testing.T) {
	_, err := control.NewCredentials(control.Source{Way: control.FromOIDC, RoleARN: role})
	assert.ErrorContains(t, err, "OIDC")
	_, err = control.NewCredentials(control.Source{Way: "guess"})
	assert.ErrorContains(t, err, "guess")
}

func TestARoleThatIsRefusedIsTakenOnceMore(t *testing.T) {
	host, asked, _ := tokens(t, time.Hour)
	c, err := control.NewCredentials(control.Source{Way: control.FromKey, Key: key, RoleARN: role, Endpoint: host})
	assert.NilError(t, err)
	before, err := c.Get(t.Context())
	assert.NilError(t, err)
	assert.Check(t, c.Renew(t.Context()))
	after, err := c.Get(t.Context())
	assert.NilError(t, err)
	assert.Check(t, before.AccessKeyID != after.AccessKeyID)
	assert.Check(t, !c.Renew(t.Context()), "these were fetched a moment ago")
	assert.Equal(t, asked.Load(), int32(2))

	c, err = control.NewCredentials(control.Source{Way: control.FromKey, Key: key})
	assert.NilError(t, err)
	assert.Check(t, !c.Renew(t.Context()), "a key stays what it is")
}
