package e2e_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

const tlsBlock = "tls {\n  cert_file = \"tls.crt\"\n  key_file  = \"tls.key\"\n}\n"

// startTLS starts a broker that speaks HTTPS with a certificate of the authority.
func startTLS(t *testing.T, authority *certtest.Authority) *harness.Broker {
	t.Helper()
	b := harness.Start(t, harness.Options{
		Config:  harness.Tenants + tlsBlock + "provider \"mock\" {\n}\n",
		Plugins: map[string]string{"mock": mockPlugin},
		Prepare: func(dir string) { authority.Issue("number 0").Write(t, dir) },
		TLS:     &tls.Config{RootCAs: authority.Pool()},
	})
	assert.Assert(t, strings.HasPrefix(b.URL, "https://"), b.URL)
	return b
}

// certificateOf is the name in the certificate that a new connection sees.
func certificateOf(t *testing.T, b *harness.Broker, authority *certtest.Authority) string {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(b.URL, "https://"), &tls.Config{RootCAs: authority.Pool()})
	assert.NilError(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// Certificates are replaced under load: no request fails, whether its connection is
// new or old.
func TestCertificatesAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	authority := certtest.NewAuthority(t)
	b := startTLS(t, authority)
	stop := make(chan struct{})
	var load sync.WaitGroup
	var done atomic.Int64
	const body = `{"language": "mock", "code": "{\"stdout\": \"works\"}"}`
	for i := range 20 {
		// Half of the clients make a connection for every request.
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}, DisableKeepAlives: i%2 == 0}
		client := &http.Client{Transport: transport, Timeout: 4 * time.Minute}
		load.Go(func() {
			defer transport.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				req, err := http.NewRequest(http.MethodPost, b.URL+"/api/v1/execute", strings.NewReader(body))
				if !assert.Check(t, err) {
					return
				}
				req.Header.Set("Authorization", "Bearer "+harness.Token)
				req.Header.Set("Content-Type", "application/json")
				resp, err := client.Do(req)
				if !assert.Check(t, err) {
					return
				}
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if !assert.Check(t, err) || !assert.Check(t, is.Equal(resp.StatusCode, http.StatusOK), "%s", text) {
					return
				}
				done.Add(1)
			}
		})
	}
	for n := 1; n <= 10; n++ {
		at, name := done.Load(), fmt.Sprintf("number %d", n)
		authority.Issue(name).Write(t, b.Dir)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			return poll.Compare(is.Equal(certificateOf(t, b, authority), name))
		}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if done.Load() < at+50 {
				return poll.Continue("%d", done.Load()-at)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	}
	// One that is of no use leaves the last one in force.
	assert.NilError(t, os.WriteFile(filepath.Join(b.Dir, "tls.crt"), []byte("no certificate"), 0o644))
	awaitLog(t, b, "failed to find any PEM data in certificate input", 1)
	assert.Equal(t, certificateOf(t, b, authority), "number 10")
	close(stop)
	load.Wait()
	check := icmd.RunCommand(filepath.Join(b.Dir, "bin", "sandbox-broker"), "check", b.ConfigFile())
	assert.Equal(t, check.ExitCode, 1)
	assert.Check(t, is.Contains(check.Stderr(), "cert_file and key_file do not go together"))
	destroyAll(t, b)
}

func TestABrokerDoesNotStartWithACertificateOfNoUse(t *testing.T) {
	t.Parallel()
	authority := certtest.NewAuthority(t)
	said := harness.Refusal(t, harness.Options{
		Config:  harness.Tenants + tlsBlock + "provider \"mock\" {\n}\n",
		Plugins: map[string]string{"mock": mockPlugin},
		Prepare: func(dir string) {
			_, key := authority.Issue("number 0").Write(t, dir)
			assert.NilError(t, os.Chmod(key, 0o644))
		},
	})
	assert.Check(t, is.Contains(said, "key_file: others have access to it (mode 0644); chmod 600 it"))
	assert.Check(t, is.Contains(said, "in tls"))
}

func TestACommandLineSpeaksTLSWithTheBroker(t *testing.T) {
	t.Parallel()
	authority, other := certtest.NewAuthority(t), certtest.NewAuthority(t)
	b := startTLS(t, authority)
	dir := t.TempDir()
	trusted, untrusted := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "other.pem")
	assert.NilError(t, os.WriteFile(trusted, authority.PEM, 0o644))
	assert.NilError(t, os.WriteFile(untrusted, other.PEM, 0o644))
	exec := func(args ...string) *icmd.Result {
		return icmd.RunCmd(icmd.Command(filepath.Join(binaries.Dir(t), "sandbox-broker"),
			append([]string{"exec", "-", "--language", "mock", "--url", b.URL}, args...)...),
			icmd.WithEnv(append(os.Environ(), "SANDBOX_BROKER_TOKEN="+harness.Token)...),
			icmd.WithStdin(strings.NewReader(`{"stdout": "works"}`)))
	}
	exec("--ca-file", trusted).Assert(t, icmd.Expected{ExitCode: 0, Out: "works"})
	exec("--ca-file", untrusted).Assert(t, icmd.Expected{ExitCode: 3, Err: "certificate signed by unknown authority"})

	// With a reload clients need certificates of their own.
	rewrite(t, b, with("  key_file  =", "  client_ca_file = \""+untrusted+"\"\n  key_file  ="))
	awaitLog(t, b, "settings: tls", 1)
	exec("--ca-file", trusted).Assert(t, icmd.Expected{ExitCode: 3, Err: "certificate required"})
	certificate, key := other.Issue("client").Write(t, dir)
	exec("--ca-file", trusted, "--cert-file", certificate, "--key-file", key).Assert(t, icmd.Expected{ExitCode: 0, Out: "works"})
}
