// Package harness starts the real broker for tests: the binary that `make build`
// made, on a configuration of the test, in a directory of its own. What the tests
// want to prove is theirs; this package knows how to start, ask, kill and look
// for what is left.
package harness

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/postgres"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Tokens of the tenants in Tenants.
const (
	Token      = "token-of-acme"
	OtherToken = "token-of-rival"
)

// Tenants is a piece of configuration with two tenants, acme and rival, whose
// tokens are Token and OtherToken. They may run as much as tests like.
const Tenants = `
quota { max_concurrent = 10000 }
tenant "acme"  { token_sha256 = ["80f196a8c8fcbdecce7c3c1d44bcd50539617f29e98e5162ca24f75c693e1936"] }
tenant "rival" { token_sha256 = ["2a745c00e7ccd079979b1e03b478d91bcacffee9cdf15b88e8c172ad2a7ba28c"] }
`

// Options of Start.
type Options struct {
	// Config is the configuration file without listen, state and plugin_dir.
	Config string
	// Plugins are further plugins, by name, with the path of their binary.
	Plugins map[string]string
	// Database is the URL of a database for the state; "" for a file, unless the tests run
	// beside a server (.ci/with-postgres).
	Database string
	// User runs the broker as this user and group, if not 0.
	User uint32
	// Prepare, if not nil, gets the broker's directory before the broker starts.
	Prepare func(dir string)
	// Descriptors is how many file descriptors the broker may have; 0 for as many as
	// the test.
	Descriptors int
	// TLS is how requests are sent to a broker with a tls block; nil for the usual.
	TLS *tls.Config
}

// Broker is a running broker.
type Broker struct {
	URL string
	// Dir holds all that the broker may write to. It is on the command line of
	// every process of its sandboxes.
	Dir string
	PID int

	t      testing.TB
	limit  int // of descriptors; 0 for none
	cmd    *exec.Cmd
	log    *log
	ended  chan struct{}
	client *http.Client
}

// Start starts a broker and waits until it is ready. When the test ends the
// broker is stopped, and the test fails if anything is left of it.
func Start(t testing.TB, o Options) *Broker {
	t.Helper()
	b := launch(t, o)
	b.waitReady()
	return b
}

// Refusal starts a broker that shall not become ready, waits for its end and
// returns what it said. The test fails if anything is left of it.
func Refusal(t testing.TB, o Options) string {
	t.Helper()
	b := launch(t, o)
	select {
	case <-b.ended:
	case <-time.After(time.Minute):
		t.Fatalf("the broker does not end:\n%s", b.log)
	}
	assert.Check(t, b.cmd.ProcessState.ExitCode() == 1, "%v:\n%s", b.cmd.ProcessState, b.log)
	return b.Log()
}

// launch starts a broker and has it stopped when the test ends.
func launch(t testing.TB, o Options) *Broker {
	t.Helper()
	dir := scratch.Dir(t)
	assert.NilError(t, os.Chmod(dir, 0o755))
	b := &Broker{Dir: dir, t: t, log: &log{}, ended: make(chan struct{}), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200, TLSClientConfig: o.TLS}}}
	b.limit = o.Descriptors
	b.layOut(o)
	if o.Prepare != nil {
		o.Prepare(dir)
	}
	b.command()
	if o.User != 0 {
		// The repository may be where that user cannot look.
		binaries.Install(t, binaries.Runsc(t), filepath.Join(dir, "bin", "runsc"))
		b.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: o.User, Gid: o.User}}
		assert.NilError(t, os.Chown(dir, int(o.User), int(o.User)))
	}
	b.begin()
	t.Cleanup(b.finish)
	return b
}

// layOut makes the directory of a broker: binaries, plugins, configuration.
func (b *Broker) layOut(o Options) {
	t := b.t
	t.Helper()
	built := binaries.Dir(t)
	plugins := filepath.Join(b.Dir, "bin", "plugins")
	assert.NilError(t, os.MkdirAll(plugins, 0o755))
	binaries.Install(t, filepath.Join(built, "sandbox-broker"), filepath.Join(b.Dir, "bin", "sandbox-broker"))
	binaries.Install(t, filepath.Join(built, "sandbox-guest"), filepath.Join(b.Dir, "bin", "sandbox-guest"))
	binaries.Install(t, filepath.Join(built, "plugins", "self_managed"), filepath.Join(plugins, "self_managed"))
	for name, path := range o.Plugins {
		binaries.Install(t, path, filepath.Join(plugins, name))
	}
	state := "state = \"./state\"\n"
	if database := cmp.Or(o.Database, postgres.Beside(t)); database != "" {
		state = fmt.Sprintf("state = %q\ndata = \"./state\"\n", database)
	}
	file := "listen = \"127.0.0.1:0\"\n" + state + "plugin_dir = \"./bin/plugins\"\n" + o.Config
	assert.NilError(t, os.WriteFile(b.ConfigFile(), []byte(file), 0o644))
}

// ConfigFile is the path of the broker's configuration.
func (b *Broker) ConfigFile() string { return filepath.Join(b.Dir, "sandbox.hcl") }

var address = regexp.MustCompile(`https?://127\.\d+\.\d+\.\d+:\d+`)

// waitReady waits until the broker answers with all that it serves by default.
func (b *Broker) waitReady() {
	b.t.Helper()
	poll.WaitOn(b.t, func(poll.LogT) poll.Result {
		select {
		case <-b.ended:
			return poll.Error(fmt.Errorf("the broker ended:\n%s", b.log))
		default:
		}
		if b.URL = address.FindString(b.log.String()); b.URL == "" {
			return poll.Continue("no address yet:\n%s", b.log)
		}
		answer := b.Do(http.MethodGet, "/readyz", "", nil)
		drains := bytes.Contains(answer.Body, []byte("is draining")) // which a restart does not change
		if answer.Status != http.StatusOK && !drains || bytes.Contains(answer.Body, []byte("not_ready")) {
			return poll.Continue("not ready: %s\n%s", answer.Body, b.log)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(20*time.Millisecond))
}

// Answer is what came back from the broker.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	// Err is set if no answer came.
	Err error
}

// Into decodes the body.
func (a Answer) Into(t testing.TB, into any) {
	t.Helper()
	assert.NilError(t, a.Err)
	assert.NilError(t, json.Unmarshal(a.Body, into), "%s", a.Body)
}

// doTimeout ends a request that nothing else ends, so that its test can tell.
const doTimeout = 8 * time.Minute

// Do sends a request; body is encoded as JSON unless it is nil or a []byte. It
// may be called from any goroutine.
func (b *Broker) Do(method, path, token string, body any) Answer {
	ctx, cancel := context.WithTimeout(context.Background(), doTimeout)
	defer cancel()
	return b.DoContext(ctx, method, path, token, body)
}

// DoWith is Do with further headers.
func (b *Broker) DoWith(method, path, token string, body any, headers map[string]string) Answer {
	ctx, cancel := context.WithTimeout(context.Background(), doTimeout)
	defer cancel()
	return b.do(ctx, method, path, token, body, headers)
}

// DoContext is Do with a context.
func (b *Broker) DoContext(ctx context.Context, method, path, token string, body any) Answer {
	return b.do(ctx, method, path, token, body, nil)
}

func (b *Broker) do(ctx context.Context, method, path, token string, body any, headers map[string]string) Answer {
	var payload io.Reader
	switch v := body.(type) {
	case nil:
	case []byte:
		payload = bytes.NewReader(v)
	default:
		encoded, err := json.Marshal(v)
		if err != nil {
			return Answer{Err: err}
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.URL+path, payload)
	if err != nil {
		return Answer{Err: err}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: text, Err: err}
}

// CloseIdleConnections closes those that no request uses.
func (b *Broker) CloseIdleConnections() { b.client.CloseIdleConnections() }

// The answers of the API are the client's.
type (
	// Execution is what became of code.
	Execution = client.Execution
	// Artifact is what an execution made beside its output.
	Artifact = client.Artifact
	// Problem is a refusal.
	Problem = client.Problem
)

// API is the client that agents in Go have, as acme.
func (b *Broker) API() *client.Client { return client.New(b.URL, Token).Over(b.client) }

// Execute runs code in a fresh instance as acme and expects to be answered.
func (b *Broker) Execute(t testing.TB, request map[string]any) Execution {
	t.Helper()
	answer := b.Do(http.MethodPost, "/api/v1/execute", Token, request)
	assert.NilError(t, answer.Err)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	var e Execution
	answer.Into(t, &e)
	return e
}

// Refused expects an answer to be a problem with this status and code.
func Refused(t testing.TB, answer Answer, status int, code string) Problem {
	t.Helper()
	var p Problem
	answer.Into(t, &p)
	assert.Equal(t, answer.Status, status, "%s", answer.Body)
	assert.Equal(t, p.Code, code, "%s", answer.Body)
	assert.Equal(t, answer.Header.Get("Content-Type"), "application/problem+json")
	assert.Check(t, p.RequestID != "")
	return p
}

// Log is what the broker has written so far.
func (b *Broker) Log() string { return b.log.String() }

// Plugin is the process ID of a plugin, by the name of its executable.
func (b *Broker) Plugin(name string) int {
	b.t.Helper()
	for _, p := range Plugins(b.t, b.PID) {
		if filepath.Base(p.Executable) == name {
			return p.PID
		}
	}
	b.t.Fatalf("there is no plugin %s among %v", name, Processes(b.t))
	return 0
}

// Kill kills the broker with SIGKILL and waits for its death.
func (b *Broker) Kill() {
	b.t.Helper()
	assert.NilError(b.t, b.cmd.Process.Kill())
	<-b.ended
}

// Stop asks the broker to stop with SIGTERM and returns its exit code.
func (b *Broker) Stop() int {
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.ended:
	case <-time.After(time.Minute):
		b.t.Errorf("the broker does not stop:\n%s", b.log)
		_ = b.cmd.Process.Kill()
		<-b.ended
	}
	return b.cmd.ProcessState.ExitCode()
}

// Ended is closed when the broker has ended.
func (b *Broker) Ended() <-chan struct{} { return b.ended }

// finish stops the broker if the test did not, and looks for what is left.
func (b *Broker) finish() {
	select {
	case <-b.ended:
	default:
		code := b.Stop()
		if code != 0 {
			b.t.Errorf("the broker ended with exit code %d", code)
		}
	}
	if b.t.Failed() {
		b.t.Logf("the broker's log:\n%s", b.log)
	}
	b.WaitGone()
	binaries.CheckRaces(b.t, b.Log())
	// After kill -9 of broker and plugin, cgroups wait for the next start of this
	// broker, which will not come.
	for _, dir := range b.Groups() {
		_ = os.Remove(dir)
	}
}

// Groups lists the directories of the broker's cgroups, those of sandboxes before
// their parents.
func (b *Broker) Groups() []string {
	b.t.Helper()
	id, err := os.ReadFile(filepath.Join(b.Dir, "state", "broker_id"))
	if err != nil {
		return nil // it did not come that far
	}
	var dirs []string
	for _, below := range []string{"/*", ""} {
		for _, hierarchy := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
			found, err := filepath.Glob(hierarchy + "/sandbox-broker/" + strings.TrimSpace(string(id)) + "*" + below)
			assert.NilError(b.t, err)
			dirs = append(dirs, slices.DeleteFunc(found, func(path string) bool {
				info, err := os.Stat(path)
				return err != nil || !info.IsDir()
			})...)
		}
	}
	return dirs
}

// WaitGone fails the test unless every process of the broker goes.
func (b *Broker) WaitGone() {
	b.t.Helper()
	poll.WaitOn(b.t, func(poll.LogT) poll.Result {
		if left := b.Left(); len(left) > 0 {
			return poll.Continue("left: %v", left)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(50*time.Millisecond))
}

// Left lists the living processes, other than the broker, that carry the
// broker's directory in their command line or executable.
func (b *Broker) Left() []Process {
	var left []Process
	for _, p := range Processes(b.t) {
		if p.PID != b.PID && (strings.Contains(p.Command, b.Dir) || strings.Contains(p.Executable, b.Dir)) {
			left = append(left, p)
		}
	}
	return left
}

// Tail is the end of a file, or why it cannot be read. Waits ask for that of a log at each look,
// and a log grows all the time.
func Tail(file string, most int64) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(info.Size(), most))
	if _, err := f.ReadAt(text, info.Size()-int64(len(text))); err != nil {
		return err.Error()
	}
	return string(text)
}

// log keeps what is written to it. A Builder gives its text without a copy: tests ask for all of it
// at each look of a wait.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Process is a process on this machine.
type Process struct {
	PID, Parent int
	Command     string
	Executable  string
}

// Processes lists the living processes; zombies hold nothing and are left out.
func Processes(t testing.TB) []Process {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	assert.NilError(t, err)
	var list []Process
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has just ended
		}
		assert.NilError(t, err)
		var p Process
		var state string
		// The name in parentheses may hold anything.
		after := string(stat[bytes.LastIndexByte(stat, ')')+1:])
		_, err = fmt.Sscan(after, &state, &p.Parent)
		assert.NilError(t, err)
		if state == "Z" || state == "X" {
			continue
		}
		_, err = fmt.Sscan(filepath.Base(dir), &p.PID)
		assert.NilError(t, err)
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		p.Command = strings.ReplaceAll(string(command), "\x00", " ")
		p.Executable, _ = os.Readlink(filepath.Join(dir, "exe"))
		list = append(list, p)
	}
	return list
}

// Plugins are those of a broker: the children of its children, which watch over them.
func Plugins(t testing.TB, broker int) (plugins []Process) {
	t.Helper()
	all, watchdogs := Processes(t), map[int]bool{}
	for _, p := range all {
		watchdogs[p.PID] = p.Parent == broker
	}
	for _, p := range all {
		if watchdogs[p.Parent] {
			plugins = append(plugins, p)
		}
	}
	return plugins
}

// Descriptors counts the open descriptors of a process.
func Descriptors(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	assert.NilError(t, err)
	return len(entries)
}
