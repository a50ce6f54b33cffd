package nemesis_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/nemesis/link"
	"github.com/sandbox-broker/sandbox-broker/e2e/postgres"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
)

const (
	// brokers in a fleet.
	brokers = 5
	// haste is how much faster a broker does what it does every minute.
	haste = 100
	// readyBound is how long a broker may take to be ready when all is well.
	readyBound = time.Minute
)

// fleet is brokers on one database, with one cloud behind them.
type fleet struct {
	t       testing.TB
	dir     string
	cloud   *cloud.Cloud
	brokers []*broker
	http    *http.Client

	// primary is the server that the links lead to, and standby the one that follows it.
	primary, standby *postgres.Server
	// servers are all that there were.
	servers []*postgres.Server
}

// newFleet starts a fleet, and waits until it is ready.
func newFleet(t testing.TB, seed uint64) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: fleetDir(t), http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	// A standby looks for its server soon when that is there again, and has the log say when.
	f.primary = postgres.Start(t, "wal_retrieve_retry_interval=100ms", "log_line_prefix=%m [%p] ", "log_replication_commands=on")
	database, err := url.Parse(f.primary.Database())
	assert.NilError(t, err)
	f.standby = f.primary.Standby()
	f.servers = append(f.servers, f.primary, f.standby)
	t.Cleanup(func() {
		for n, s := range f.servers {
			if t.Failed() {
				assert.Check(t, os.WriteFile(filepath.Join(f.dir, fmt.Sprint("server-", n)), []byte(s.Log()), 0o600))
			}
		}
	})
	f.cloud, err = cloud.Start(cloud.Options{Name: "cloud", Address: "127.0.0.1:0", Seed: seed})
	assert.NilError(t, err)
	t.Cleanup(f.cloud.Close)
	authority := certtest.NewAuthority(t)
	for n := range brokers {
		f.brokers = append(f.brokers, f.newBroker(n, *database, authority))
	}
	for _, b := range f.brokers {
		go b.supervise()
		go b.watch()
		t.Cleanup(b.close)
	}
	f.waitReady()
	return f
}

// fleetDir makes the directory of a fleet. Of one that failed a copy stays.
func fleetDir(t testing.TB) string {
	dir := scratch.Dir(t)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		kept, err := os.MkdirTemp("", "nemesis") //nolint:usetesting // it shall outlive the test
		if err == nil {
			err = exec.Command("cp", "-a", dir, kept).Run()
		}
		t.Logf("what there is to look at: %s (%v)", kept, err)
	})
	return dir
}

func (f *fleet) waitReady() {
	f.t.Helper()
	poll.WaitOn(f.t, func(poll.LogT) poll.Result {
		for _, b := range f.brokers {
			if !b.ready() || b.ill() {
				return poll.Continue("%s is not ready:\n%s", b.name, b.lastLog())
			}
		}
		return poll.Success()
	}, poll.WithTimeout(readyBound), poll.WithDelay(50*time.Millisecond))
}

// broker is one of a fleet, with who starts it again whenever it has ended.
type broker struct {
	fleet     *fleet
	name, dir string
	address   string
	peers     *link.Link // by which its peers reach it
	database  *link.Link // by which it reaches the database
	closing   chan struct{}
	closed    sync.WaitGroup
	awake     chan struct{} // has one element for each end of a time in which it stays down
	mu        sync.Mutex
	cmd       *exec.Cmd
	starts    int
	health    health
	down      bool
	skew      time.Duration // by which its clock is ahead
}

// newBroker lays one out. It does not run yet.
func (f *fleet) newBroker(n int, database url.URL, authority *certtest.Authority) *broker {
	t := f.t
	t.Helper()
	b := &broker{fleet: f, skew: skews[n], name: fmt.Sprint("b", n), address: freeAddress(t), closing: make(chan struct{}), awake: make(chan struct{}, 1)}
	b.dir = filepath.Join(f.dir, b.name)
	plugins := filepath.Join(b.dir, "plugins")
	assert.NilError(t, os.MkdirAll(plugins, 0o755))
	binaries.Install(t, built.plugin, filepath.Join(plugins, "cloud"))
	certificate, key := authority.Issue("127.0.0.1").Write(t, b.dir)
	ca := filepath.Join(b.dir, "ca.pem")
	assert.NilError(t, os.WriteFile(ca, authority.PEM, 0o600))
	var err error
	listens := freeAddress(t)
	b.peers, err = link.Listen(listens, f.sourceOf)
	assert.NilError(t, err)
	b.database, err = link.Listen(f.primary.Address(), nil)
	assert.NilError(t, err)
	database.Host = b.database.Address()
	var text strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	put("listen = %q\nplugin_dir = %q\nstate = %q\ndata = %q", b.address, plugins, database.String(), filepath.Join(b.dir, "state"))
	put("peers {\n listen = %q\n advertise = %q\n cert_file = %q\n key_file = %q\n ca_file = %q\n}", listens, b.peers.Address(), certificate, key, ca)
	put("limits {\n create_timeout = \"3s\"\n default_ttl = \"6h\"\n max_idle = \"6h\"\n default_timeout = \"5s\"\n}")
	put("provider \"cloud\" {\n endpoint = %q\n}\nproviders {\n active = \"cloud\"\n on_stop = \"keep\"\n}", f.cloud.URL())
	for _, tenant := range tenants() {
		most := 1000
		if strings.HasPrefix(tenant, "frugal") {
			most = maxInstances
		}
		put("tenant %q {\n token_sha256 = [\"%x\"]\n quota {\n  max_instances = %d\n  max_concurrent = 1000\n }\n}", tenant, sha256.Sum256([]byte(tokenOf(tenant))), most)
	}
	assert.NilError(t, os.WriteFile(filepath.Join(b.dir, "sandbox.hcl"), []byte(text.String()), 0o600))
	return b
}

// supervise is the service manager: it starts the broker again whenever it has ended, unless
// the nemesis wants it down.
func (b *broker) supervise() {
	b.closed.Add(1)
	defer b.closed.Done()
	for {
		if b.isDown() {
			select {
			case <-b.awake:
			case <-b.closing:
				return
			}
			continue
		}
		cmd, err := b.start()
		if err != nil {
			b.fleet.t.Errorf("start %s: %v", b.name, err)
			return
		}
		_ = cmd.Wait()
		select {
		case <-b.closing:
			return
		case <-time.After(restartPause):
		}
	}
}

// restartPause is how long a service manager waits before it starts a broker again.
const restartPause = 200 * time.Millisecond

func (b *broker) start() (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starts++
	fmt.Fprintf(log, "--- start %d at %s\n", b.starts, time.Now().Format(time.RFC3339Nano))
	cmd := exec.Command(built.broker, "serve", "--config", filepath.Join(b.dir, "sandbox.hcl"))
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, b.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+b.dir, "XDG_RUNTIME_DIR="+b.dir, "HOME="+b.dir, fmt.Sprintf("%s=%d", failpoint.HasteEnvironment, haste), fmt.Sprintf("%s=%d", skewVariable, int(b.skew.Seconds())))
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.cmd = cmd
	return cmd, nil
}

func (b *broker) isDown() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down
}

// kill kills the broker, which stays down until up.
func (b *broker) kill() {
	b.mu.Lock()
	b.down = true
	b.mu.Unlock()
	b.signal(syscall.SIGKILL)
}

func (b *broker) up() {
	b.mu.Lock()
	b.down = false
	b.mu.Unlock()
	select {
	case b.awake <- struct{}{}:
	default:
	}
}

func (b *broker) signal(s syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil {
		_ = b.cmd.Process.Signal(s) // it may have ended
	}
}

// killPlugin kills the plugin alone.
func (b *broker) killPlugin() {
	for _, p := range harness.Processes(b.fleet.t) {
		if p.Executable == filepath.Join(b.dir, "plugins", "cloud") {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
}

// close ends the broker for good.
func (b *broker) close() {
	close(b.closing)
	b.signal(syscall.SIGCONT)
	b.signal(syscall.SIGKILL)
	b.closed.Wait()
	b.peers.Close()
	b.database.Close()
	poll.WaitOn(b.fleet.t, func(poll.LogT) poll.Result {
		for _, p := range harness.Processes(b.fleet.t) {
			if strings.HasPrefix(p.Executable, b.dir+"/") {
				return poll.Continue("%v is left", p)
			}
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute), poll.WithDelay(20*time.Millisecond))
	log, err := os.ReadFile(filepath.Join(b.dir, "log"))
	assert.Check(b.fleet.t, err)
	binaries.CheckRaces(b.fleet.t, string(log))
}

// readyPatience bounds one look whether a broker is ready.
const readyPatience = time.Second

func (b *broker) ready() bool {
	ctx, cancel := context.WithTimeout(context.Background(), readyPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.address+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := b.fleet.http.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// id is the broker's name for itself.
func (b *broker) id() string {
	text, err := os.ReadFile(filepath.Join(b.dir, "state", "broker_id"))
	assert.Check(b.fleet.t, err)
	return strings.TrimSpace(string(text))
}

// lastLog is the end of the broker's log.
func (b *broker) lastLog() string { return harness.Tail(filepath.Join(b.dir, "log"), 3000) }
