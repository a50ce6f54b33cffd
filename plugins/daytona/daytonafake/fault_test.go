package daytonafake_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
)

// try makes a request that may fail.
func try(ctx context.Context, method, url string) error {
	_, err := send(ctx, method, url, "")
	return err
}

func TestFaults(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	id, toolbox := create(t, s, `{}`)
	sandbox := s.APIURL + "/sandbox/" + id
	t.Run("a status", func(t *testing.T) {
		s.Inject(daytonafake.Fault{On: "GET /api/sandbox/*", Times: 1, Skip: 1, Status: 502, Body: "<html>", Header: map[string]string{"Content-Type": "text/html"}})
		assert.Equal(t, ask(t, http.MethodGet, sandbox, "").status, 200)
		r := ask(t, http.MethodGet, sandbox, "")
		assert.Equal(t, r.status, 502)
		assert.Equal(t, r.text, "<html>")
		assert.Equal(t, ask(t, http.MethodGet, sandbox, "").status, 200)
	})
	t.Run("throttled", func(t *testing.T) {
		s.Throttle("POST /api/sandbox", 1, 7)
		r := ask(t, http.MethodPost, s.APIURL+"/sandbox", "{}")
		assert.Equal(t, r.status, 429)
		assert.Equal(t, r.header.Get("Retry-After"), "7")
		assert.Equal(t, s.Created(), 1)
	})
	t.Run("a lost answer", func(t *testing.T) {
		s.Inject(daytonafake.Fault{On: "POST /toolbox/*/files/folder", Times: 1, After: true, Reset: true})
		err := try(t.Context(), http.MethodPost, toolbox+"/files/folder?path=/tmp/made&mode=755")
		assert.Check(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), "%v", err)
		assert.Equal(t, ask(t, http.MethodGet, toolbox+"/files/info?path=/tmp/made", "").status, 200)
	})
	t.Run("a hang", func(t *testing.T) {
		s.Inject(daytonafake.Fault{On: "GET /toolbox/*/version", Times: 1, Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() { failed <- try(ctx, http.MethodGet, toolbox+"/version") }()
		poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(s.Hanging(), 1)) }, poll.WithTimeout(2*time.Minute))
		cancel()
		assert.ErrorIs(t, <-failed, context.Canceled)
	})
	t.Run("a cut", func(t *testing.T) {
		s.Inject(daytonafake.Fault{On: "GET /api/config", Times: 1, CutAt: daytonafake.Bytes(5)})
		assert.ErrorIs(t, try(t.Context(), http.MethodGet, s.APIURL+"/config"), io.ErrUnexpectedEOF)
	})
	t.Run("broken, and taken back", func(t *testing.T) {
		s.Inject(daytonafake.Fault{On: "GET /api/sandbox/*", Status: 500})
		repair := s.Break()
		assert.Check(t, try(t.Context(), http.MethodGet, sandbox) != nil)
		repair()
		assert.Equal(t, ask(t, http.MethodGet, sandbox, "").status, 500)
		s.Honest()
		assert.Equal(t, ask(t, http.MethodGet, sandbox, "").status, 200)
	})
	t.Run("calls are counted", func(t *testing.T) {
		before := s.Calls("GET /api/sandbox/*")
		ask(t, http.MethodGet, sandbox, "")
		assert.Equal(t, s.Calls("GET /api/sandbox/*"), before+1)
	})
}

func TestStatesLinger(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	states := func(body string) (seen []any) {
		o := ask(t, http.MethodPost, s.APIURL+"/sandbox", body).object(t)
		for o["state"] != "started" && o["state"] != "build_failed" {
			o = ask(t, http.MethodGet, s.APIURL+"/sandbox/"+o["id"].(string), "").object(t)
			seen = append(seen, o["state"])
		}
		return append(seen, o["errorReason"])
	}
	const image = `{"buildInfo":{"dockerfileContent":"FROM python:3.12\n"}}`
	s.Linger("pending_build", 2)
	seen := states(image)
	assert.DeepEqual(t, seen, []any{"pending_build", "pending_build", "building_snapshot", "creating", "started", nil})
	seen = states(image)
	assert.DeepEqual(t, seen, []any{"creating", "started", nil})
	s.Linger("creating", 0)
	s.FailCreations(1, "build_failed", "no such image")
	seen = states(`{}`)
	assert.DeepEqual(t, seen, []any{"no such image"})

	id, _ := create(t, s, `{}`)
	s.Linger("stopping", 2)
	assert.Equal(t, ask(t, http.MethodPost, s.APIURL+"/sandbox/"+id+"/stop", "").status, 200)
	assert.Equal(t, ask(t, http.MethodDelete, s.APIURL+"/sandbox/"+id, "").status, 409)
	assert.Equal(t, ask(t, http.MethodGet, s.APIURL+"/sandbox/"+id, "").object(t)["state"], "stopping")
	s.Linger("destroying", daytonafake.Forever)
	assert.Equal(t, ask(t, http.MethodDelete, s.APIURL+"/sandbox/"+id, "").status, 200)
	for range 5 {
		assert.Equal(t, ask(t, http.MethodGet, s.APIURL+"/sandbox/"+id, "").object(t)["state"], "destroying")
	}
}

func TestTroubleOfSandboxes(t *testing.T) {
	s := cloud(t, daytonafake.Options{MaxCPU: 2, PageSize: 1, ShowDestroyed: true})
	first, toolbox := create(t, s, `{}`)
	s.HideFromLists(1)
	second, _ := create(t, s, `{}`)
	list := func(query string) (ids []any, next any) {
		o := ask(t, http.MethodGet, s.APIURL+"/sandbox?"+query, "").object(t)
		for _, one := range o["items"].([]any) {
			ids = append(ids, one.(map[string]any)["id"])
		}
		return ids, o["nextCursor"]
	}
	ids, next := list("")
	assert.DeepEqual(t, ids, []any{first})
	assert.Equal(t, next, nil)
	ids, next = list("")
	assert.DeepEqual(t, ids, []any{second})
	ids, next = list("cursor=" + next.(string))
	assert.DeepEqual(t, ids, []any{first})
	assert.Equal(t, next, nil)
	full := ask(t, http.MethodPost, s.APIURL+"/sandbox", "{}")
	assert.Equal(t, full.status, 400)
	assert.Check(t, is.Contains(full.text, "Total CPU limit exceeded"))

	assert.Equal(t, run(t, toolbox, "grep oom_kill /sys/fs/cgroup/memory.events"), "oom_kill 0\n")
	assert.NilError(t, s.KillForMemory(first))
	assert.Equal(t, run(t, toolbox, "grep oom_kill /sys/fs/cgroup/memory.events"), "oom_kill 1\n")

	assert.NilError(t, s.Fail(first, "the runner is gone", true))
	o := ask(t, http.MethodGet, s.APIURL+"/sandbox/"+first, "").object(t)
	assert.Equal(t, o["state"], "error")
	assert.Equal(t, o["errorReason"], "the runner is gone")
	assert.Equal(t, o["recoverable"], true)
	assert.Equal(t, ask(t, http.MethodPost, s.APIURL+"/sandbox/"+first+"/recover", "").status, 200)
	assert.Equal(t, s.State(first), "started")

	ask(t, http.MethodDelete, s.APIURL+"/sandbox/"+second, "")
	ask(t, http.MethodGet, s.APIURL+"/sandbox/"+second, "")
	assert.Equal(t, ask(t, http.MethodGet, s.APIURL+"/sandbox/"+second, "").object(t)["state"], "destroyed")
	assert.NilError(t, s.Vanish(first))
	assert.Equal(t, ask(t, http.MethodGet, s.APIURL+"/sandbox/"+first, "").status, 404)
	assert.Equal(t, ask(t, http.MethodGet, toolbox+"/version", "").status, 404)
	assert.Equal(t, len(s.Sandboxes()), 0)
}
