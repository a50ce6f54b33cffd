package proxies

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/postgres"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// way is the one that docs/scaling.md leads from one broker to two, on addresses of this machine.
type way struct {
	// certificates are commands, broker and balancer are configurations.
	certificates, broker, balancer string
	// network is what the addresses of all begin with.
	network string
	// made is the directory in which the commands were run.
	made string
}

func readWay(t *testing.T) way {
	t.Helper()
	page, err := markdown.Read("../../docs/scaling.md")
	assert.NilError(t, err)
	w := way{network: fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250)), made: t.TempDir()}
	here := strings.NewReplacer("10.0.0.", w.network, "bind :443", "bind "+w.network+"4:8443", "/etc/haproxy", w.made)
	for n, into := range []*string{&w.certificates, &w.broker, &w.balancer} {
		*into = here.Replace(page.Blocks[n].Code)
	}
	assert.Assert(t, is.Contains(w.balancer, "listen brokers"), "the page begins with other blocks")
	return w
}

// layOut writes into a broker's directory what the page has it have: for the broker at .5, unless
// it is alone and has its state in a file, and for the other one.
func (w way) layOut(t *testing.T, dir, host string, alone bool) {
	t.Helper()
	own := strings.ReplaceAll(w.broker, w.network+"5", w.network+host)
	if alone {
		listen, _, _ := strings.Cut(own, "\n")
		own = listen + "\nstate = \"./data\"\ninclude = [\"shared.hcl\"]\n"
	}
	sum := sha256.Sum256([]byte(adminToken))
	files := map[string]string{
		"sandbox.hcl": own + "plugin_dir = \"./bin/plugins\"\n",
		"shared.hcl": harness.Tenants + "provider \"mock\" {}\nadmin { token_sha256 = [\"" + hex.EncodeToString(sum[:]) + "\"] }\n" +
			"connections { shared_addresses = [\"" + w.network + "4\"] }\n",
	}
	for _, name := range []string{w.network + host + ".pem", w.network + host + ".key", "peers-ca.pem"} {
		text, err := os.ReadFile(filepath.Join(w.made, name))
		assert.NilError(t, err)
		files[name] = string(text)
	}
	for name, text := range files {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

func (w way) start(t *testing.T, host string, alone bool) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Options{
		Plugins: map[string]string{"mock": mockPlugin},
		Prepare: func(dir string) { w.layOut(t, dir, host, alone) },
	})
}

// adminToken is that of the configuration that the brokers share.
const adminToken = "token-of-admin"

// run runs commands of the page.
func run(t *testing.T, dir string, command ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SANDBOX_BROKER_TOKEN="+adminToken)
	said, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%v: %s", command, said)
}

// One broker with a file becomes two on a database behind HAProxy, and one of these is taken out
// and comes back while clients ask, of whom none may notice.
func TestTheWayFromOneBrokerToTwo(t *testing.T) {
	binaries.Needs(t, "openssl", "openssl")
	w := readWay(t)
	run(t, w.made, "bash", "-euo", "pipefail", "-c", w.certificates)

	a := w.start(t, "5", true)
	program := filepath.Join(a.Dir, "bin", "sandbox-broker")
	once := func(b *harness.Broker) string {
		answer := b.DoWith(http.MethodPost, path, harness.Token, map[string]any{"language": "mock", "code": `{"stdout": "once"}`}, map[string]string{"Idempotency-Key": "begun"})
		assert.NilError(t, answer.Err)
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		return string(answer.Body)
	}
	told := once(a)
	assert.Equal(t, a.Stop(), 0)
	t.Setenv("BROKER_DATABASE", postgres.Start(t).Database())
	w.layOut(t, a.Dir, "5", false)
	run(t, a.Dir, program, "check")
	a.Restart()
	b := w.start(t, "6", false)
	assert.Equal(t, once(b), told, "what was in the file is in the database")

	authority := certtest.NewAuthority(t)
	pair := authority.Issue("localhost")
	assert.NilError(t, os.WriteFile(filepath.Join(w.made, "api.pem"), append(pair.Certificate, pair.Key...), 0o600))
	haproxy := all[1]
	assert.Equal(t, haproxy.name, "haproxy")
	haproxy.config = w.balancer
	front := haproxy.startAt(t, w.network+"4:8443", "")
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authority.Pool(), ServerName: "localhost"}}
	defer transport.CloseIdleConnections()
	api := client.New("https://"+front.address, harness.Token).Over(&http.Client{Transport: transport})

	var asked atomic.Int64
	var clients sync.WaitGroup
	end := make(chan struct{})
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				assert.Check(t, useSession(t, api, fmt.Sprintf("session-%d", asked.Add(1))))
			}
		})
	}
	more := func() {
		t.Helper()
		until := asked.Load() + 100
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if asked.Load() < until && !t.Failed() {
				return poll.Continue("%d executions", asked.Load())
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	}
	noticed := func(state string) {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if !strings.Contains(front.log.String(), "Server brokers/a is "+state) {
				return poll.Continue("%s", front.log)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	}
	more()
	run(t, a.Dir, program, "drain", "--url", a.URL, "--wait", "2m")
	noticed("DOWN")
	assert.Equal(t, a.Stop(), 0)
	more()
	a.Restart()
	run(t, a.Dir, program, "drain", "--url", a.URL, "--undo")
	noticed("UP")
	more()
	close(end)
	clients.Wait()
}

// useSession makes a session, runs code in it and ends it.
func useSession(t *testing.T, api *client.Client, session string) error {
	made, err := api.CreateInstance(t.Context(), client.CreateInstanceRequest{SessionID: session})
	if err != nil {
		return err
	}
	done, err := api.Execute(t.Context(), client.ExecuteRequest{SessionID: session, Language: "mock", Code: fmt.Sprintf(`{"stdout": %q}`, session)})
	switch {
	case err != nil:
		return err
	case done.Stdout != session || done.InstanceID != made.ID:
		return fmt.Errorf("the answer in %s is %+v", made.ID, done)
	}
	return api.DestroyInstance(t.Context(), made.ID)
}
