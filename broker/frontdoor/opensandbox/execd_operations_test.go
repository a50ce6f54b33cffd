package opensandbox_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

type executions struct {
	ID       string `json:"instance_id"`
	IssuedAt int64  `json:"issued_at"`
}

// named is the name of an operation that is issued now.
func (e executions) named(token string) string {
	return fmt.Sprintf("%s.%d.%s", e.ID, e.IssuedAt, token)
}

func (f *fixture) executions() (e executions) {
	f.t.Helper()
	f.execd(http.MethodGet, "/execution/instance", "").wants(http.StatusOK).decode(&e)
	return e
}

// begun is an operation as its client sees it.
type begun struct {
	ID        string
	Kind      string
	State     string
	ExpiresAt time.Time `json:"expires_at"`
	Error     string
}

func command(id, script string) string {
	return fmt.Sprintf(`{"operation_id": %q, "command": %q}`, id, script)
}

// counting has each start of a command counted.
func counting(starts *atomic.Int64) func(*box) {
	return func(b *box) {
		b.starting = func() error {
			starts.Add(1)
			return nil
		}
	}
}

func operationHeader(id string) string { return "X-EXECD-OPERATION-ID: " + id }

var (
	commandIDs = regexp.MustCompile(`"id":"\w+"`)
	issues     = regexp.MustCompile(`"issued_at":\d+`)
)

func TestOperationsOverTheWire(t *testing.T) {
	f := start(t)
	e := f.executions()
	now := e.named("token-01")
	requests := []struct{ method, path, body, id string }{
		{"GET", "/execution/instance", "", ""},
		{"POST", "/command/operations", command(now, "echo once"), ""},
		{"POST", "/command/operations", command(now, "echo once"), ""},
		{"POST", "/command/operations", command(now, "echo twice"), ""},
		{"GET", "/execution/operation?kind=command", "", now},
		{"GET", "/execution/operation?kind=pty", "", now},
		{"GET", "/execution/operation?kind=job", "", now},
		{"GET", "/execution/operation?kind=command", "", ""},
		{"GET", "/execution/operation?kind=command", "", e.named("token-02")},
		{"POST", "/command/operations", fmt.Sprintf(`{"operation_id": %q, "command": "ls", "cwd": "/nowhere"}`, e.named("token-03")), ""},
		{"GET", "/execution/operation?kind=command", "", e.named("token-03")},
		{"POST", "/command/operations", command(strings.Repeat("0", 32)+".1.token-04", "ls"), ""},
		{"GET", "/execution/operation?kind=command", "", strings.Repeat("0", 32) + ".1.token-04"},
		{"POST", "/command/operations", command(e.ID+".1.token-05", "ls"), ""},
		{"GET", "/execution/operation?kind=command", "", e.ID + ".1.token-05"},
		{"POST", "/command/operations", command(e.ID+".1.short", "ls"), ""},
		{"POST", "/command/operations", `{"command": "ls"}`, ""},
		{"POST", "/command/operations", fmt.Sprintf(`{"operation_id": %q, "command": "ls", "user": "root"}`, now), ""},
		{"POST", "/command/operations", fmt.Sprintf(`{"operation_id": %q, "command": "ls", "argv": ["ls"]}`, now), ""},
		{"POST", "/command/operations", `[]`, ""},
		{"POST", "/pty/operations", fmt.Sprintf(`{"operation_id": %q}`, e.named("token-06")), ""},
	}
	var all strings.Builder
	for _, r := range requests {
		var headers []string
		if r.id != "" {
			headers = append(headers, operationHeader(r.id))
		}
		all.WriteString(f.exchange(r.method, r.path, r.body, headers...))
	}
	text := strings.NewReplacer(e.ID, "{instance}", e.named("")[len(e.ID):], ".{issued}.").Replace(all.String())
	text = issues.ReplaceAllString(commandIDs.ReplaceAllString(text, `"id":"{command}"`), `"issued_at":{issued}`)
	golden.Assert(t, text, "operations.golden")
}

func TestOf100EqualOperationsAtOnceOneIsBegun(t *testing.T) {
	var starts atomic.Int64
	f := start(t, counting(&starts))
	body := command(f.executions().named("token-01"), "echo started >> log")
	answers := make([]begun, 100)
	var all sync.WaitGroup
	for n := range answers {
		all.Go(func() { f.execd(http.MethodPost, "/command/operations", body).wants(http.StatusOK).decode(&answers[n]) })
	}
	all.Wait()
	for _, answer := range answers {
		assert.DeepEqual(t, answer, answers[0])
	}
	assert.Equal(t, answers[0].State, "created")
	assert.Equal(t, starts.Load(), int64(1))
	f.ended(answers[0].ID)
	assert.Equal(t, f.read("workspace/log"), "started\n")
}

// ended waits for the end of a command and returns its log.
func (f *fixture) ended(id string) string {
	f.t.Helper()
	poll.WaitOn(f.t, func(poll.LogT) poll.Result {
		var state struct{ Running bool }
		f.execd(http.MethodGet, "/command/status/"+id, "").wants(http.StatusOK).decode(&state)
		if state.Running {
			return poll.Continue("it runs")
		}
		return poll.Success()
	}, poll.WithDelay(10*time.Millisecond), poll.WithTimeout(time.Minute))
	return f.execd(http.MethodGet, "/command/"+id+"/logs", "").wants(http.StatusOK).text
}

func TestWhatAnOperationPrintsIsInTheLogOfItsCommand(t *testing.T) {
	f := start(t)
	e := f.executions()
	for name, background := range map[string]bool{"foreground": false, "background": true} {
		var made begun
		body := fmt.Sprintf(`{"operation_id": %q, "command": "echo out; echo $A >&2", "envs": {"A": "err"}, "background": %t}`, e.named(name), background)
		f.execd(http.MethodPost, "/command/operations", body).wants(http.StatusOK).decode(&made)
		assert.Equal(t, f.ended(made.ID), "out\nerr\n")
	}
}

func TestATerminalIsBegunOnce(t *testing.T) {
	var starts atomic.Int64
	f := start(t, counting(&starts))
	id := f.executions().named("token-01")
	shell := fmt.Sprintf(`{"operation_id": %q, "cwd": "/workspace"}`, id)
	var first, again, found begun
	f.execd(http.MethodPost, "/pty/operations", shell).wants(http.StatusOK).decode(&first)
	f.execd(http.MethodPost, "/pty/operations", shell).wants(http.StatusOK).decode(&again)
	f.execd(http.MethodGet, "/execution/operation?kind=pty", "", operationHeader(id)).wants(http.StatusOK).decode(&found)
	assert.DeepEqual(t, first, again)
	assert.DeepEqual(t, first, found)
	assert.Equal(t, first.Kind, "pty")
	assert.Equal(t, starts.Load(), int64(1))
	var state struct {
		ID      string `json:"session_id"`
		Running bool
	}
	f.execd(http.MethodGet, "/pty/"+first.ID, "").wants(http.StatusOK).decode(&state)
	assert.Equal(t, state.ID, first.ID)
	assert.Assert(t, state.Running)

	f.execd(http.MethodPost, "/pty/operations", fmt.Sprintf(`{"operation_id": %q, "command": "top"}`, id)).refuses(http.StatusConflict, "operation_conflict")
	f.execd(http.MethodPost, "/pty/operations", fmt.Sprintf(`{"operation_id": %q, "argv": ["top"]}`, id)).refuses(http.StatusBadRequest, "SB010")
	// A command may have the name of a terminal.
	var other begun
	f.execd(http.MethodPost, "/command/operations", command(id, "ls")).wants(http.StatusOK).decode(&other)
	assert.Assert(t, other.ID != first.ID)
	assert.Equal(t, starts.Load(), int64(2))
}

func TestEqualMeansTheSameRequestHoweverItIsWritten(t *testing.T) {
	var starts atomic.Int64
	f := start(t, counting(&starts))
	id := f.executions().named("token-01")
	var first, again begun
	f.execd(http.MethodPost, "/command/operations", fmt.Sprintf(`{"operation_id": %q, "command": "ls", "envs": {"A": "1", "B": "2"}}`, id)).wants(http.StatusOK).decode(&first)
	f.execd(http.MethodPost, "/command/operations", fmt.Sprintf(`{"envs":{"B":"2","A":"1"},"argv":[],"cwd":"","background":false,"timeout":null, "command":"l\u0073","operation_id":%q}`, id)).wants(http.StatusOK).decode(&again)
	assert.DeepEqual(t, first, again)
	for name, other := range map[string]string{
		"a variable":   `"command": "ls", "envs": {"A": "1", "B": "3"}`,
		"background":   `"command": "ls", "envs": {"A": "1", "B": "2"}, "background": true`,
		"a time limit": `"command": "ls", "envs": {"A": "1", "B": "2"}, "timeout": 1000`,
		"no shell":     `"argv": ["ls"], "envs": {"A": "1", "B": "2"}`,
	} {
		t.Run(name, func(t *testing.T) {
			f.execd(http.MethodPost, "/command/operations", fmt.Sprintf(`{"operation_id": %q, %s}`, id, other)).refuses(http.StatusConflict, "operation_conflict")
		})
	}
	assert.Equal(t, starts.Load(), int64(1))
}

func TestAnOperationIsOfOneSandbox(t *testing.T) {
	var starts atomic.Int64
	f := start(t, counting(&starts))
	id := f.executions().named("token-01")
	f.box.SameID = "i2"
	var made struct{ ID string }
	f.do(http.MethodPost, "/v1/sandboxes", `{"image": {"uri": "python:3.12"}}`, apiKey).wants(http.StatusAccepted).decode(&made)
	other := "/sandboxes/" + made.ID + "/proxy/44772"
	f.do(http.MethodPost, other+"/command/operations", command(id, "ls"), apiKey).refuses(http.StatusConflict, "operation_instance_mismatch")
	f.do(http.MethodGet, other+"/execution/operation?kind=command", "", apiKey, operationHeader(id)).refuses(http.StatusConflict, "operation_instance_mismatch")
	f.do(http.MethodPost, f.endpoint+"/command/operations", command(id, "ls"), "OPEN-SANDBOX-API-KEY: umbrella-token").refuses(http.StatusNotFound, "SB013")
	assert.Equal(t, starts.Load(), int64(0))
}

func TestASandboxHasRoomForSoManyOperations(t *testing.T) {
	var starts atomic.Int64
	f := start(t, counting(&starts))
	e := f.executions()
	first := command(e.named("token-first"), "ls")
	f.execd(http.MethodPost, "/command/operations", first).wants(http.StatusOK)
	group := "opensandbox " + e.ID
	var filling sync.WaitGroup
	for part := range 64 {
		filling.Go(func() {
			for n := part; n < idempotency.MaxGroup-1; n += 64 {
				id := idempotency.ID{Tenant: "acme", Group: group, Key: fmt.Sprintf("filling %d", n)}
				_, _, err := f.answers.Begin(t.Context(), id, idempotency.Fingerprint{})
				assert.Check(t, err)
				f.answers.Abandon(id)
			}
		})
	}
	filling.Wait()
	refused := f.execd(http.MethodPost, "/command/operations", command(e.named("token-more"), "ls"))
	refused.refuses(http.StatusServiceUnavailable, "operation_capacity_exceeded")
	assert.Check(t, is.Contains(refused.text, `"error_code":"SB008"`))
	f.execd(http.MethodPost, "/command/operations", first).wants(http.StatusOK)
	assert.Equal(t, starts.Load(), int64(1))
}

func TestARequestLargerThanAnOperation(t *testing.T) {
	f := start(t)
	body := command(f.executions().named("token-01"), strings.Repeat("x", 1<<20))
	f.execd(http.MethodPost, "/command/operations", body).refuses(http.StatusBadRequest, "SB010")
}

// What was certainly not begun is free to be asked for again.
func TestAStartThatWasRefusedIsTriedAgain(t *testing.T) {
	var starts atomic.Int64
	f := start(t)
	e := f.executions()
	f.box.starting = func() error {
		if starts.Add(1) == 1 {
			err := sdk.Errorf(sdk.CodeUnavailable, "not now")
			err.NoEffect = true
			return err
		}
		return nil
	}
	body := command(e.named("token-01"), "ls")
	f.execd(http.MethodPost, "/command/operations", body).refuses(http.StatusServiceUnavailable, "SB009")
	f.execd(http.MethodGet, "/execution/operation?kind=command", "", operationHeader(e.named("token-01"))).refuses(http.StatusNotFound, "operation_not_found")
	f.execd(http.MethodPost, "/command/operations", body).wants(http.StatusOK)
	assert.Equal(t, starts.Load(), int64(2))
}

// Of a start that the provider has not answered nobody knows whether it has happened.
func TestAStartOfUnknownOutcomeIsNotRepeated(t *testing.T) {
	var starts atomic.Int64
	f := start(t, func(b *box) {
		b.starting = func() error {
			starts.Add(1)
			return errors.New("the connection broke")
		}
	})
	id := f.executions().named("token-01")
	for range 3 {
		unknown := f.execd(http.MethodPost, "/command/operations", command(id, "ls"))
		unknown.refuses(http.StatusConflict, "operation_instance_mismatch")
		assert.Check(t, is.Contains(unknown.text, "unknown"))
		f.execd(http.MethodGet, "/execution/operation?kind=command", "", operationHeader(id)).refuses(http.StatusConflict, "operation_instance_mismatch")
	}
	assert.Equal(t, starts.Load(), int64(1))
}

func TestAClientThatLeavesFindsItsOperation(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	f := start(t, func(b *box) {
		b.starting = func() error {
			close(began)
			<-release
			return nil
		}
	})
	id := f.executions().named("token-01")
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		req := f.request(ctx, http.MethodPost, f.endpoint+"/command/operations", strings.NewReader(command(id, "ls")), "X-EXECD-ACCESS-TOKEN: "+f.token)
		_, err := f.client.Do(req) //nolint:bodyclose // there is no answer
		gone <- err
	}()
	<-began
	var creating, created begun
	f.execd(http.MethodGet, "/execution/operation?kind=command", "", operationHeader(id)).wants(http.StatusAccepted).decode(&creating)
	assert.Equal(t, creating.State, "creating")
	f.execd(http.MethodPost, "/command/operations", command(id, "pwd")).refuses(http.StatusConflict, "operation_conflict")
	leave()
	assert.ErrorIs(t, <-gone, context.Canceled)
	close(release)
	f.execd(http.MethodPost, "/command/operations", command(id, "ls")).wants(http.StatusOK).decode(&created)
	assert.Equal(t, created.State, "created")
	assert.Equal(t, created.ExpiresAt, creating.ExpiresAt)
}

// restarted is the fixture as the next process of the broker is after a kill -9: with the
// state file as it is now, and the same sandbox.
func (f *fixture) restarted() *fixture {
	f.t.Helper()
	content, err := os.ReadFile(f.state.Path())
	assert.NilError(f.t, err)
	path := filepath.Join(scratch.Dir(f.t), "state.db")
	assert.NilError(f.t, os.WriteFile(path, content, 0o600))
	next := *f
	next.state, err = store.Open(path, store.Options{})
	assert.NilError(f.t, err)
	next.answers, err = idempotency.Open(next.state)
	assert.NilError(f.t, err)
	server, err := api.NewServer(api.Options{
		Instances: f.service, Answers: next.answers, Logger: hclog.NewNullLogger(), FrontDoors: door, PreviewKey: previewKey,
		Tenants: tenant.NewDirectory([]tenant.Credentials{{Tenant: tenant.Tenant{Name: "acme"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("acme-token"))}}}),
		Bounds:  api.Bounds{MaxBody: 2 << 20, RequestTimeout: time.Minute},
	})
	assert.NilError(f.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(f.t, err)
	next.address = listener.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	f.t.Cleanup(func() {
		f.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.Check(f.t, server.Shutdown(ctx))
		assert.Check(f.t, <-ended)
		assert.Check(f.t, next.state.Close())
	})
	return &next
}

func TestAfterACrashAnOperationIsNotBegunAgain(t *testing.T) {
	var starts atomic.Int64
	began, release := make(chan struct{}), make(chan struct{})
	f := start(t, func(b *box) {
		b.starting = func() error {
			if starts.Add(1) == 2 {
				close(began)
				<-release
			}
			return nil
		}
	})
	e := f.executions()
	var done, again begun
	f.execd(http.MethodPost, "/command/operations", command(e.named("token-done"), "ls")).wants(http.StatusOK).decode(&done)
	cut := command(e.named("token-cut"), "ls")
	left := make(chan struct{})
	go func() {
		defer close(left)
		f.execd(http.MethodPost, "/command/operations", cut)
	}()
	<-began

	next := f.restarted()
	assert.Equal(t, next.executions().ID, e.ID)
	next.execd(http.MethodPost, "/command/operations", command(e.named("token-done"), "ls")).wants(http.StatusOK).decode(&again)
	assert.DeepEqual(t, done, again)
	for range 2 {
		unknown := next.execd(http.MethodPost, "/command/operations", cut)
		unknown.refuses(http.StatusConflict, "operation_instance_mismatch")
		assert.Check(t, is.Contains(unknown.text, "unknown"))
		next.execd(http.MethodGet, "/execution/operation?kind=command", "", operationHeader(e.named("token-cut"))).refuses(http.StatusConflict, "operation_instance_mismatch")
	}
	next.execd(http.MethodPost, "/command/operations", command(e.named("token-cut"), "pwd")).refuses(http.StatusConflict, "operation_conflict")
	close(release)
	<-left
	assert.Equal(t, starts.Load(), int64(2))
}
