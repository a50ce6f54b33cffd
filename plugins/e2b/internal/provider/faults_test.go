package provider_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// fault is one of the control API, and what it is called when it does not end.
type fault struct {
	e2bfake.Fault
	code sdk.Code
	// passes says that it does not matter if it happens once.
	passes bool
}

func problem(status int, errorCode string) string {
	return fmt.Sprintf(`{"code":%d,"message":"the server says no","error_code":%q}`, status, errorCode)
}

func faults() map[string]fault {
	page := "<html><h1>502 Bad Gateway</h1></html>"
	return map[string]fault{
		"503":                         {e2bfake.Fault{Status: 503, Body: problem(503, "")}, sdk.CodeUnavailable, true},
		"503, no room":                {e2bfake.Fault{Status: 503, Body: problem(503, "sandbox_capacity_unavailable")}, sdk.CodeUnavailable, true},
		"500":                         {e2bfake.Fault{Status: 500, Body: problem(500, "internal_server_error")}, sdk.CodeUnavailable, true},
		"504 of a load balancer":      {e2bfake.Fault{Status: 504, Body: "upstream request timeout"}, sdk.CodeUnavailable, true},
		"502 of a load balancer":      {e2bfake.Fault{Status: 502, Body: page}, sdk.CodeUnavailable, true},
		"429 with a time":             {e2bfake.Fault{Status: 429, Header: map[string]string{"Retry-After": "1"}, Body: problem(429, "")}, sdk.CodeQuotaExceeded, true},
		"429 without a time":          {e2bfake.Fault{Status: 429, Body: problem(429, "")}, sdk.CodeQuotaExceeded, false},
		"401":                         {e2bfake.Fault{Status: 401, Body: problem(401, "")}, sdk.CodeInvalidConfig, false},
		"403":                         {e2bfake.Fault{Status: 403, Body: problem(403, "")}, sdk.CodeInvalidConfig, false},
		"no answer":                   {e2bfake.Fault{Reset: true}, sdk.CodeConnectionFailed, true},
		"no answer, but the effect":   {e2bfake.Fault{Reset: true, After: true}, sdk.CodeConnectionFailed, true},
		"504, but the effect":         {e2bfake.Fault{Status: 504, Body: "upstream request timeout", After: true}, sdk.CodeUnavailable, true},
		"500, but the effect":         {e2bfake.Fault{Status: 500, Body: problem(500, ""), After: true}, sdk.CodeUnavailable, true},
		"half an answer":              {e2bfake.Fault{CutAt: e2bfake.Bytes(10)}, sdk.CodeConnectionFailed, true},
		"a page instead of an answer": {e2bfake.Fault{Status: 200, Body: page, After: true}, sdk.CodeUnavailable, false},
	}
}

// call is one that the broker makes, and the requests that it is made of.
type call struct {
	on      []string
	do      func(t *testing.T, p *provider.Provider, id string) error
	without []string // faults that cannot happen to it: it has no answer to read
}

func calls() map[string]call {
	noBody := []string{"half an answer", "a page instead of an answer"}
	return map[string]call{
		"Destroy": {[]string{"DELETE /sandboxes/*"}, func(t *testing.T, p *provider.Provider, id string) error { return p.Destroy(t.Context(), id) }, noBody},
		"List": {[]string{"GET /v2/sandboxes"}, func(t *testing.T, p *provider.Provider, _ string) error {
			_, err := p.List(t.Context())
			return err
		}, nil},
		"SetTTL": {[]string{"POST /sandboxes/*/timeout"}, func(t *testing.T, p *provider.Provider, id string) error {
			_, err := p.SetTTL(t.Context(), id, time.Hour)
			return err
		}, noBody},
		"Pause": {[]string{"POST /sandboxes/*/pause"}, func(t *testing.T, p *provider.Provider, id string) error { return p.Pause(t.Context(), id) }, noBody},
		"Resume": {[]string{"POST /sandboxes/*/connect", "POST /v2/sandboxes/*/connect"}, func(t *testing.T, p *provider.Provider, id string) error {
			return p.Resume(t.Context(), id)
		}, nil},
	}
}

func TestWhateverTheControlAPIAnswersHasItsCode(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, map[string]any{"max_retries": int64(1)})
	for name, c := range calls() {
		for what, f := range faults() {
			if slices.Contains(c.without, what) {
				continue
			}
			t.Run(name+", "+what, func(t *testing.T) {
				id := create(t, p)
				defer func() {
					server.Honest()
					assert.NilError(t, p.Destroy(t.Context(), id))
					assert.Equal(t, len(server.Sandboxes()), 0)
				}()
				inject(server, c.on, f.Fault, 1)
				err := c.do(t, p, id)
				if f.passes {
					assert.NilError(t, err)
				} else {
					assert.Equal(t, sdk.CodeOf(err), f.code, "%v", err)
				}
				server.Honest()
				if name == "Destroy" && f.passes {
					return
				}
				inject(server, c.on, f.Fault, 0)
				err = c.do(t, p, id)
				settled := name == "Destroy" || name == "Pause" // the second try finds the effect of the first
				if err != nil || !f.After || !settled {
					assert.Equal(t, sdk.CodeOf(err), f.code, "%v", err)
					assert.Check(t, !strings.Contains(err.Error(), e2bfake.DefaultAPIKey))
				}
			})
		}
	}
}

func inject(server *e2bfake.Server, on []string, f e2bfake.Fault, times int) {
	for _, pattern := range on {
		f.On, f.Times = pattern, times
		server.Inject(f)
	}
}

func TestWhatACreationMakesIsListedWithItsLabels(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, map[string]any{"max_retries": int64(1)})
	try := func(t *testing.T, late int) error {
		labels := map[string]string{sdk.LabelInstance: rand.Text()}
		made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", IdempotencyKey: rand.Text(), Labels: labels, TTL: time.Hour})
		server.Honest()
		there := server.Sandboxes()
		if err == nil {
			assert.Check(t, slices.Contains(there, made.ID))
			assert.Equal(t, bash(t, p, made.ID, "echo hello"), "hello\n")
		}
		if late == 0 {
			assert.Check(t, is.Len(there, map[bool]int{true: 1}[err == nil]), "one, or none")
		}
		// What lists have hidden is listed in the end.
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			list, err := p.List(t.Context())
			assert.NilError(t, err)
			return poll.Compare(is.Len(list, len(there)))
		}, poll.WithTimeout(2*time.Minute))
		list, listed := p.List(t.Context())
		assert.NilError(t, listed)
		for _, i := range list {
			assert.DeepEqual(t, i.Labels, labels)
			assert.NilError(t, p.Destroy(t.Context(), i.ID))
		}
		return err
	}
	all := faults()
	all["500, not made"] = fault{e2bfake.Fault{Status: 500, Body: problem(500, "sandbox_create_failed")}, sdk.CodeCreateFailed, true}
	all["503, not for this template"] = fault{e2bfake.Fault{Status: 503, Body: problem(503, "sandbox_no_compatible_node")}, sdk.CodeCreateFailed, false}
	all["400"] = fault{e2bfake.Fault{Status: 400, Body: problem(400, "")}, sdk.CodeInvalidConfig, false}
	for what, f := range all {
		made := f.After || f.CutAt != nil
		// A creation with one retry looks at six lists.
		for _, hidden := range []int{0, 4} {
			if !made && hidden > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s, lists %d late", what, hidden), func(t *testing.T) {
				server.HideFromLists(hidden)
				defer func() {
					server.HideFromLists(0)
					for _, id := range server.Sandboxes() {
						server.Expire(id) // only where the test has failed
					}
				}()
				on := []string{"POST /sandboxes", "POST /v2/sandboxes"}
				inject(server, on, f.Fault, 1)
				if err := try(t, hidden); f.passes || made {
					assert.NilError(t, err)
				} else {
					assert.Equal(t, sdk.CodeOf(err), f.code, "%v", err)
				}
				inject(server, on, f.Fault, 0)
				err := try(t, hidden)
				if made {
					assert.NilError(t, err)
					return
				}
				code := f.code
				if what == "500" || what == "500, but the effect" {
					code = sdk.CodeCreateFailed
				}
				assert.Equal(t, sdk.CodeOf(err), code, "%v", err)
				assert.Equal(t, knownToBeWithoutEffect(err), f.Status >= 400 && f.Status < 500, "%v", err)
			})
		}
	}
}

// knownToBeWithoutEffect reports whether an error says so.
func knownToBeWithoutEffect(err error) bool {
	e, ok := errors.AsType[*sdk.Error](err)
	return ok && e.NoEffect
}

func TestNothingIsMadeByAServiceThatIsNotReached(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, map[string]any{"max_retries": int64(0)})
	server.Close()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", IdempotencyKey: rand.Text()})
		assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeConnectionFailed), "%v", err)
		if !knownToBeWithoutEffect(err) { // a connection that was open yet
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// longRunning prints 200 lines, and goes on in two sessions.
const longRunning = "setsid sleep 98765 >/dev/null 2>&1 & for i in {1..200}; do echo line $i; done; sleep 98765\n"

// findRunning lists what is left of it.
const findRunning = "grep -lsa 'sleep.9876[5]' /proc/[0-9]*/cmdline; true"

// nothingRuns checks that no process of longRunning is left.
func nothingRuns(t *testing.T, p *provider.Provider, id string) {
	t.Helper()
	assert.Equal(t, bash(t, p, id, findRunning), "")
}

func TestAnExecutionThatIsCutOffIsEnded(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	left, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"sleep", "98765"}, KeepOutput: 1})
	assert.NilError(t, err)
	assert.Assert(t, bash(t, p, id, findRunning) != "", "what runs is found")
	assert.NilError(t, p.SignalCommand(t.Context(), id, left.ID, "SIGKILL"))
	for _, at := range []int{0, 1, 4, 5, 17, 33, 60, 100, 300, 700, 1500} {
		t.Run(fmt.Sprintf("after %d bytes", at), func(t *testing.T) {
			inject(server, []string{"POST /process.Process/Start"}, e2bfake.Fault{CutAt: e2bfake.Bytes(at)}, 1)
			_, err := p.Execute(t.Context(), request(id, sdk.Bash, longRunning), &heard{})
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
			nothingRuns(t, p, id)
		})
	}
}

func TestWhateverASandboxAnswersHasItsCode(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	for what, c := range map[string]struct {
		fault e2bfake.Fault
		code  sdk.Code
	}{
		"502 of a sandbox that is there":  {e2bfake.Fault{Status: 502, Body: `{"sandboxId":"x","message":"not found","code":502}`}, sdk.CodeUnavailable},
		"502 of a port":                   {e2bfake.Fault{Status: 502, Body: `{"sandboxId":"x","message":"closed","port":49983,"code":502}`}, sdk.CodeConnectionFailed},
		"502 of a load balancer":          {e2bfake.Fault{Status: 502, Body: "<html></html>"}, sdk.CodeUnavailable},
		"504 of a load balancer":          {e2bfake.Fault{Status: 504, Body: "upstream request timeout"}, sdk.CodeUnavailable},
		"500":                             {e2bfake.Fault{Status: 500, Body: "x"}, sdk.CodeUnavailable},
		"409 of one between states":       {e2bfake.Fault{Status: 409, Body: `{"sandboxId":"x","message":"starting","code":409}`}, sdk.CodeUnavailable},
		"429 with too many connections":   {e2bfake.Fault{Status: 429, Body: `{"sandboxId":"x","message":"full","connectionLimit":5,"code":429}`}, sdk.CodeQuotaExceeded},
		"429 with a time":                 {e2bfake.Fault{Status: 429, Header: map[string]string{"Retry-After": "7"}}, sdk.CodeQuotaExceeded},
		"401 although the token is right": {e2bfake.Fault{Status: 401, Body: `{"code":401,"message":"unauthorized"}`}, sdk.CodeConnectionFailed},
		"403":                             {e2bfake.Fault{Status: 403, Body: `{"sandboxId":"x","message":"traffic","code":403}`}, sdk.CodeConnectionFailed},
		"no answer":                       {e2bfake.Fault{Reset: true}, sdk.CodeConnectionFailed},
	} {
		t.Run(what, func(t *testing.T) {
			defer server.Honest()
			inject(server, []string{"POST /process.Process/Start"}, c.fault, 1)
			_, err := p.Execute(t.Context(), request(id, sdk.Bash, longRunning), &heard{})
			assert.Equal(t, sdk.CodeOf(err), c.code, "%v", err)
			server.Honest()
			nothingRuns(t, p, id)

			// Every time, for Go itself repeats a GET on a connection that was used before.
			inject(server, []string{"GET /metrics"}, c.fault, 0)
			_, err = p.InstanceMetrics(t.Context(), id)
			assert.Equal(t, sdk.CodeOf(err), c.code, "%v", err)
		})
	}
}

func TestASandboxThatEndsWithinAnExecutionIsUnavailableAndNotFoundAfterwards(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	var out heard
	ended := make(chan error, 1)
	go func() {
		_, err := p.Execute(t.Context(), request(id, sdk.Bash, longRunning), &out)
		ended <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Contains(out.out(), "line 200\n")) }, poll.WithTimeout(2*time.Minute))
	server.Expire(id)
	err := <-ended
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable}, "the code ran")
	assert.Check(t, !knownToBeWithoutEffect(err))
	_, err = p.Execute(t.Context(), request(id, sdk.Bash, "true"), &out)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	assert.Check(t, knownToBeWithoutEffect(err))
}

func TestATokenThatIsNotValidAnyMoreIsRenewed(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	for range 2 {
		assert.NilError(t, server.ReplaceToken(t.Context(), id))
		assert.Equal(t, bash(t, p, id, "echo hello"), "hello\n")
	}
}

func TestTheLimitOfSandboxesIsTold(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{MaxSandboxes: 1})
	p := configured(t, server, nil)
	id := create(t, p)
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeQuotaExceeded})
	assert.NilError(t, p.Destroy(t.Context(), id))
	create(t, p)
}
