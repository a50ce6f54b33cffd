package chaos_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/postgres"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
)

// world is a broker, its plugins and the clouds behind.
type world struct {
	t       testing.TB
	dir     string
	address string
	// auditDir and stateDir are the directories of the broker.
	auditDir, stateDir string
	// database has the state in place of the directory, unless it is empty.
	database string
	// keeps and keepers are as in options.
	keeps, keepers bool
	// diskTimeout is how long requests may wait for the broker's disk.
	diskTimeout time.Duration
	// listsGone says that the cloud lists for a while what is gone.
	listsGone bool
	// createTimeout is how long a creation may take, 3 s if it is 0.
	createTimeout time.Duration
	// cloud is the first of the clouds, and the only one unless options say more.
	cloud  *cloud.Cloud
	clouds []*cloud.Cloud
	// backends there are instead of clouds, and pace is that of either.
	backends []backend
	pace     pace
	// seen are the tokens of all that has run in real sandboxes, as far as it was looked for.
	seen    map[string]bool
	http    *http.Client
	history history
	clients []actor

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

// options of newWorld.
type options struct {
	// state and audit are the directories; below the world's unless given.
	state, audit string
	// keeps says that a stop in order leaves what the cloud has.
	keeps bool
	// keepers says that there are clients that keep snapshots and volumes, and templates.
	keepers bool
	// disk is how long requests may wait for the broker's disk; 30 s unless given.
	disk time.Duration
	// providers by label, each with a cloud of its own of that name; one unless given.
	providers []string
	// backends of real providers, instead of clouds, with clients of each tenant.
	backends []backend
	clients  int
	pace     pace
}

// newWorld lays a world out. The broker does not run yet.
func newWorld(t testing.TB, seed uint64, o options) *world {
	t.Helper()
	dir := worldDir(t)
	w := &world{
		t: t, dir: dir, address: freeAddress(t), seen: map[string]bool{},
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
	}
	if len(o.providers)+len(o.backends) == 0 {
		o.providers = []string{"cloud"}
	}
	w.backends, w.pace = o.backends, cmp.Or(o.pace, modelPace)
	assert.NilError(t, os.Mkdir(w.plugins(), 0o755))
	for _, b := range o.backends {
		binaries.Install(t, filepath.Join(binaries.Dir(t), "plugins", b.label()), filepath.Join(w.plugins(), b.label()))
	}
	for i, label := range o.providers {
		// By its file it is told which provider a process is of.
		binaries.Install(t, built.plugin, filepath.Join(w.plugins(), label))
		one, err := cloud.Start(cloud.Options{Name: label, Address: freeAddress(t), Seed: seed + uint64(i)})
		assert.NilError(t, err)
		t.Cleanup(one.Close)
		w.clouds = append(w.clouds, one)
	}
	if len(w.clouds) > 0 {
		w.cloud = w.clouds[0]
	}
	if o.state == "" {
		o.state = filepath.Join(dir, "state")
	}
	if o.audit == "" {
		o.audit = filepath.Join(o.state, "audit")
	}
	w.auditDir, w.stateDir, w.database = o.audit, o.state, postgres.Beside(t)
	w.clients = newClients(w, seed, cmp.Or(o.clients, clientsOfTenant))
	if w.keepers = o.keepers; w.keepers {
		w.clients = append(w.clients, newKeepers(w, seed)...)
	}
	w.keeps, w.diskTimeout = o.keeps, cmp.Or(o.disk, 30*time.Second)
	w.configure("ordered")
	t.Cleanup(func() {
		w.kill()
		w.waitGone()
		log, err := os.ReadFile(filepath.Join(dir, "log"))
		assert.Check(t, err == nil || errors.Is(err, os.ErrNotExist), "%v", err)
		binaries.CheckRaces(t, string(log))
		if t.Failed() {
			assert.Check(t, w.history.save(filepath.Join(dir, "history.jsonl")))
		}
	})
	return w
}

// worldDir makes the directory of a world. Of one that failed a copy stays.
func worldDir(t testing.TB) string {
	dir := scratch.Dir(t)
	t.Cleanup(func() { keepOfFailed(t, dir) })
	return dir
}

// keepOfFailed copies a directory of a test that failed to where it outlives the test.
func keepOfFailed(t testing.TB, dir string) {
	if !t.Failed() {
		return
	}
	kept, err := os.MkdirTemp("", "chaos") //nolint:usetesting // it shall outlive the test
	if err == nil {
		err = exec.Command("cp", "-a", dir, kept).Run()
	}
	t.Logf("what there is to look at: %s (%v)", kept, err)
}

// addresses counts those that freeAddress gave. Each is given once: of two worlds that
// run side by side none gets that of a broker of the other one, which is dead.
var addresses atomic.Uint32

var firstAddress = rand.Uint32()

// freeAddress is one that the broker comes back to after each death. It is below the
// range from which the system takes ports for connections, and would take this one
// while the broker is dead.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+(firstAddress+addresses.Add(1))%10000)
		if l, err := net.Listen("tcp", address); err == nil {
			assert.NilError(t, l.Close())
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

func tokenOf(tenant string) string { return "token-of-" + tenant }

// start starts the broker. points is what happens at its fail points.
func (w *world) start(points string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(w.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	assert.NilError(w.t, err)
	defer log.Close()
	fmt.Fprintf(log, "--- start, with %q\n", points)
	cmd := exec.Command(built.broker, "serve", "--config", filepath.Join(w.dir, "sandbox.hcl"))
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, w.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+w.dir, "XDG_RUNTIME_DIR="+w.dir, "HOME="+w.dir, failpoint.Environment+"="+points, fmt.Sprintf("%s=%d", failpoint.HasteEnvironment, *hasteFlag))
	assert.NilError(w.t, cmd.Start())
	ended := make(chan struct{})
	w.cmd, w.ended = cmd, ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
}

// dead returns a channel that is closed at the end of the broker that runs.
func (w *world) dead() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// kill kills the broker, if one runs, and returns when it is dead.
func (w *world) kill() {
	w.mu.Lock()
	cmd, ended := w.cmd, w.ended
	w.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // it may be dead already
	<-ended
}

// stopTimeout is longer than a stop in order can take.
const stopTimeout = 90 * time.Second

// askToStop has the broker begin a stop in order, and does not wait for it.
func (w *world) askToStop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
}

// awaitStop waits until the broker has ended by itself.
func (w *world) awaitStop() {
	w.t.Helper()
	select {
	case <-w.dead():
	case <-time.After(stopTimeout):
		w.mu.Lock()
		_ = w.cmd.Process.Signal(syscall.SIGQUIT) // what it waits for is in its log then
		w.mu.Unlock()
		<-w.dead()
		w.t.Fatalf("the broker does not stop\n%s", w.lastLog())
	}
	assert.Check(w.t, w.cmd.ProcessState.Success(), "%v\n%s", w.cmd.ProcessState, w.lastLog())
}

// killPlugin kills the plugin of a provider, or those of all, as far as they run.
func (w *world) killPlugin(label string) {
	w.mu.Lock()
	parent := w.cmd.Process.Pid
	w.mu.Unlock()
	for _, p := range harness.Plugins(w.t, parent) {
		of := filepath.Base(p.Executable)
		if !slices.Contains(w.labels(), of) || label != "" && label != of {
			continue
		}
		for _, c := range w.clouds {
			if c.Name() == of {
				c.Killing(strconv.Itoa(p.PID))
			}
		}
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
}

// waitGone waits until no plugin of the world runs any more.
func (w *world) waitGone() {
	w.t.Helper()
	poll.WaitOn(w.t, func(poll.LogT) poll.Result {
		for _, p := range harness.Processes(w.t) {
			if filepath.Dir(filepath.Dir(p.Executable)) == w.dir {
				return poll.Continue("%v is left", p)
			}
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(20*time.Millisecond))
}

// waitReady waits until the broker is ready.
func (w *world) waitReady() {
	w.t.Helper()
	w.waitFor("/readyz", poll.Error(errors.New("the broker ended")))
}

// waitServing waits until the broker answers, which it does without a provider that is
// ready, or has ended.
func (w *world) waitServing() {
	w.t.Helper()
	w.waitFor("/healthz", poll.Success())
}

// waitFor waits until a path answers 200. ended is the result if the broker ends before.
func (w *world) waitFor(path string, ended poll.Result) {
	w.t.Helper()
	poll.WaitOn(w.t, func(poll.LogT) poll.Result {
		select {
		case <-w.dead():
			if ended.Error() != nil {
				w.t.Log(w.lastLog())
			}
			return ended
		default:
		}
		if a := w.ask(http.MethodGet, path, "", nil, ""); a.Status != http.StatusOK {
			return poll.Continue("%s: %v %s\n%s", path, a.Err, a.Body, w.lastLog())
		}
		return poll.Success()
	}, poll.WithTimeout(max(readyBound, w.pace.settle)), poll.WithDelay(10*time.Millisecond))
}

// readyBound is how long the broker may take to be ready: a provider whose list fails
// five times in a row, as that of a cloud that lies may, is left alone for half a minute and more.
const readyBound = time.Minute

// restart is kill and start, and waits until the broker is ready.
func (w *world) restart() {
	w.t.Helper()
	w.kill()
	w.start("")
	w.waitReady()
}

// lastLog is the end of the broker's log.
func (w *world) lastLog() string { return harness.Tail(filepath.Join(w.dir, "log"), 8000) }

// answer is what came back.
type answer struct {
	Status int
	Body   []byte
	Err    error
}

// into decodes a body, and says whether that works.
func (a answer) into(v any) bool { return a.Err == nil && json.Unmarshal(a.Body, v) == nil }

// pace is how fast a world is.
type pace struct {
	// ask bounds one request, create and execute what the broker waits for, and settle how
	// long it takes until all agree; look is how often they are compared.
	ask, create, execute, settle, look time.Duration
}

// modelPace is that of clouds.
var modelPace = pace{ask: 20 * time.Second, create: 3 * time.Second, execute: 5 * time.Second, settle: leakBound, look: 30 * time.Millisecond}

// ask sends one request as a tenant.
func (w *world) ask(method, path, tenant string, body any, key string) answer {
	return w.askWithin(w.pace.ask, method, path, tenant, body, key)
}

// askWithin is ask by a client that goes away after a while.
func (w *world) askWithin(patience time.Duration, method, path, tenant string, body any, key string) answer {
	c := call{Method: method, Path: path, Header: map[string]string{}}
	if tenant != "" {
		c.Header["Authorization"] = "Bearer " + tokenOf(tenant)
	}
	if body != nil {
		c.body(body)
	}
	if key != "" {
		c.Header[keyHeader] = key
	}
	return w.send(patience, c)
}

const keyHeader = "Idempotency-Key"

// call is a request as it goes over the wire.
type call struct {
	Method, Path string
	Header       map[string]string
	Body         []byte
	// Until is what the client has read when it leaves; it stays to the end if there is none.
	Until []byte
}

// body sets a body of JSON.
func (c *call) body(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // what clients send are strings, numbers and times
	}
	c.Body, c.Header["Content-Type"] = text, "application/json"
}

// send sends a request of a client that goes away after a while.
func (w *world) send(patience time.Duration, c call) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, c.Method, "http://"+w.address+c.Path, bytes.NewReader(c.Body))
	if err != nil {
		return answer{Err: err}
	}
	for name, value := range c.Header {
		req.Header.Set(name, value)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return answer{Err: err}
	}
	defer resp.Body.Close()
	text, err := readUntil(resp.Body, c.Until)
	return answer{Status: resp.StatusCode, Body: text, Err: err}
}

// readUntil reads all, or as far as there is what ends it, and perhaps a little more.
func readUntil(from io.Reader, end []byte) (all []byte, err error) {
	if end == nil {
		return io.ReadAll(from)
	}
	for piece := make([]byte, 4096); err == nil && !bytes.Contains(all, end); {
		var n int
		n, err = from.Read(piece)
		all = append(all, piece[:n]...)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func newRandom(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// awaitTold waits until the cloud has told a lie so often.
func (w *world) awaitTold(lie cloud.Lie, times int) {
	w.t.Helper()
	poll.WaitOn(w.t, func(poll.LogT) poll.Result {
		if w.cloud.Told()[lie] < times {
			return poll.Continue("the cloud was not asked\n%s", w.lastLog())
		}
		return poll.Success()
	}, poll.WithTimeout(reachBound), poll.WithDelay(5*time.Millisecond))
}

// brokerID is the broker's name for itself.
func (w *world) brokerID() string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.stateDir, "broker_id"))
	assert.NilError(w.t, err)
	return strings.TrimSpace(string(text))
}
