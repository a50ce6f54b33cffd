package e2b_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// detail is what a sandbox by itself says of how it ends.
type detail struct {
	State     string
	EndAt     time.Time
	Lifecycle struct {
		OnTimeout  string
		AutoResume bool
	}
}

func (f *fixture) detail(id string) (d detail) {
	f.t.Helper()
	f.do(http.MethodGet, "/sandboxes/"+id, "", apiKey).wants(http.StatusOK).decode(&d)
	return d
}

// awaitPaused waits until the timeout of a sandbox has come.
func (f *fixture) awaitPaused(id string) {
	f.t.Helper()
	poll.WaitOn(f.t, func(poll.LogT) poll.Result {
		if f.detail(id).State == "paused" {
			return poll.Success()
		}
		return poll.Continue("it runs")
	}, poll.WithTimeout(time.Minute), poll.WithDelay(20*time.Millisecond))
}

func TestASandboxThatIsPausedAtItsTimeout(t *testing.T) {
	f := start(t)
	assert.Equal(t, f.detail(f.sandbox.SandboxID).Lifecycle.OnTimeout, "kill")
	f.sandbox = f.create(`{"templateID":"base","timeout":1,"autoPause":true}`)
	id := f.sandbox.SandboxID
	assert.Equal(t, f.detail(id).Lifecycle.OnTimeout, "pause")
	f.awaitPaused(id)
	assert.Assert(t, f.left(id) > 23*time.Hour, "it is kept as long as one may live")
	f.ask("GET", "/envs", "").refuses(502, sdk.CodeConflict) // no traffic resumes it
	var again created
	f.do("POST", "/v2/sandboxes/"+id+"/connect", `{"timeout":60}`, apiKey).wants(201).decode(&again)
	assert.DeepEqual(t, again, f.sandbox)
	assert.Assert(t, f.left(id) <= time.Minute)
	f.ask("GET", "/envs", "").wants(200)
	f.do("POST", "/sandboxes/"+id+"/timeout", `{"timeout":1}`, apiKey).wants(204)
	f.awaitPaused(id) // again
	f.do("DELETE", "/sandboxes/"+id, "", apiKey).wants(204)
}

func TestTrafficResumesASandboxWhoseCreatorWantsIt(t *testing.T) {
	var resumes, pauses atomic.Int32
	going := make(chan struct{})
	f := start(t, func(_ *api.Options, b *box) {
		b.OnPause = func(ctx context.Context, _ string, pause bool) error {
			if pause {
				pauses.Add(1)
				return nil
			}
			resumes.Add(1)
			select {
			case <-going:
			case <-ctx.Done():
			}
			return nil
		}
	})
	f.sandbox = f.create(`{"templateID":"base","timeout":1,"autoPause":true,"autoResume":{"enabled":true}}`)
	id := f.sandbox.SandboxID
	assert.Assert(t, f.detail(id).Lifecycle.AutoResume)
	f.awaitPaused(id)
	f.do("GET", "/health", "", "E2b-Sandbox-Id: "+id).wants(502) // who asks for that has no credentials
	f.ask("GET", "/envs", "", "X-Access-Token: other").refuses(401, sdk.CodeNotAuthenticated)
	assert.Equal(t, resumes.Load(), int32(0))

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		req := f.request(ctx, "GET", "/envs", "", f.data()...)
		resp, err := f.client.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		left <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if resumes.Load() == 1 {
			return poll.Success()
		}
		return poll.Continue("nobody has resumed it")
	}, poll.WithTimeout(time.Minute))
	leave() // the others go on with what it has begun
	assert.ErrorIs(t, <-left, context.Canceled)
	var all errgroup.Group
	for range 8 {
		req := f.request(t.Context(), "GET", "/files?path=a", "", f.data()...)
		all.Go(func() error {
			resp, err := f.client.Do(req)
			if err != nil {
				return err
			}
			assert.Check(t, resp.StatusCode == 404, resp.Status) // there is no such file
			return resp.Body.Close()
		})
	}
	close(going)
	assert.NilError(t, all.Wait())
	assert.Equal(t, resumes.Load(), int32(1))
	assert.Equal(t, f.detail(id).State, "running")
	assert.Assert(t, f.left(id) > 290*time.Second, "at least five minutes")

	f.do("POST", "/sandboxes/"+id+"/pause", "{}", apiKey).wants(204) // by hand too
	port := []string{"E2b-Sandbox-Id: " + id, "E2b-Sandbox-Port: 8000"}
	f.do("GET", "/", "", port...).refuses(403, sdk.CodeNotAllowed)
	assert.Equal(t, resumes.Load(), int32(1))
	port = append(port, "E2b-Traffic-Access-Token: "+f.sandbox.TrafficAccessToken)
	f.do("GET", "/", "", port...).refuses(501, sdk.CodeNotSupported) // which this provider has not
	assert.Equal(t, resumes.Load(), int32(2))
	assert.Assert(t, f.left(id) <= 300*time.Second)
	assert.Equal(t, pauses.Load(), int32(2))
}

func TestASandboxToBePausedNeedsAProviderThatCan(t *testing.T) {
	f := start(t, func(_ *api.Options, b *box) { b.OnPause = nil })
	for _, wish := range []string{`"autoPause":true`, `"autoResume":{"enabled":true}`} {
		told := f.do("POST", "/v2/sandboxes", `{"templateID":"base",`+wish+`}`, apiKey).refuses(501, sdk.CodeNotSupported)
		assert.Assert(t, told.Message != "")
	}
	assert.Equal(t, len(f.box.Created()), 1)
}
