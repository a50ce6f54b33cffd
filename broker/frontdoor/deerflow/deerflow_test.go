package deerflow_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestURLsOfSandboxes(t *testing.T) {
	for address, want := range map[string]string{
		"":                               "http://gateway.example:8002/deerflow/s/",
		"sandboxes.example.com":          "http://sandboxes.example.com/deerflow/s/",
		"https://sandboxes.example.com":  "https://sandboxes.example.com/deerflow/s/",
		"https://example.com:8443/below": "https://example.com:8443/below/deerflow/s/",
	} {
		t.Run(address, func(t *testing.T) {
			f := start(t)
			f.server.SetFrontDoors(map[string]frontdoor.Settings{"deerflow": {Path: "/deerflow", Lease: time.Minute, Address: address}})
			got := f.wire(http.MethodGet, "/api/sandboxes", "", acmeKey)
			if address == "" {
				want = "http://broker.example:8002/deerflow/s/"
			}
			assert.Check(t, is.Contains(got, `"sandbox_url":"`+want+`{token}"`))
		})
	}
}

func TestCreationsAtTheSameTimeMakeOneSandbox(t *testing.T) {
	f := start(t)
	var all errgroup.Group
	answers := make([]answer, 8)
	for i := range answers {
		all.Go(func() (err error) {
			answers[i], err = f.ask(t.Context(), http.MethodPost, "/api/sandboxes", `{"sandbox_id":"raced"}`, acmeKey)
			return err
		})
	}
	assert.NilError(t, all.Wait())
	for _, a := range answers {
		assert.Equal(t, a.wants(http.StatusOK).text, answers[0].text)
	}
	assert.Assert(t, is.Len(f.box.Live(), 2))
}

// What is lost and what is in trouble that passes, the broker decides by what the provider
// has: a client makes anew what is not found, and keeps what is only out of reach.
func TestASandboxThatIsLostIsMadeAnew(t *testing.T) {
	lose := func(t *testing.T, f *fixture) {
		all, err := f.box.Provider(t.Context())
		assert.NilError(t, err)
		for _, id := range f.box.Live() {
			assert.NilError(t, all.Destroy(t.Context(), id))
		}
	}
	for name, test := range map[string]struct {
		befall func(t *testing.T, f *fixture)
		lost   bool
	}{
		"by its provider, which has told": {func(t *testing.T, f *fixture) { lose(t, f); f.service.Lose(f.box) }, true},
		"by its provider, which knows no such sandbox": {func(t *testing.T, f *fixture) {
			f.box.ail(sdk.Errorf(sdk.CodeNotFound, "no such instance"))
			lose(t, f)
		}, true},
		"by its provider, which only says that it ended": {func(t *testing.T, f *fixture) {
			f.box.ail(sdk.Errorf(sdk.CodeUnavailable, "the sandbox ended during the call"))
			lose(t, f)
		}, true},
		"by somebody who destroyed it elsewhere": {func(t *testing.T, f *fixture) {
			for _, one := range f.service.ListAll("acme", listAll).Instances {
				assert.NilError(t, f.service.Destroy(t.Context(), tenant.Tenant{Name: "acme"}, one.ID.String()))
			}
		}, true},
		"not at all: it is only out of reach": {func(_ *testing.T, f *fixture) {
			f.box.ail(sdk.Errorf(sdk.CodeUnavailable, "the sandbox does not answer"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			f.exec("true")
			test.befall(t, f)
			found := f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey)
			if !test.lost {
				found.refuses(http.StatusServiceUnavailable, "SB009")
				f.do(http.MethodPost, "/api/sandboxes", `{"sandbox_id":"`+firstID+`"}`, acmeKey).refuses(http.StatusServiceUnavailable, "SB009")
				f.box.ail(nil)
				assert.Equal(t, f.create(firstID, acmeKey), f.url)
				f.exec("true")
				return
			}
			found.refuses(http.StatusNotFound, "SB013")
			again := f.create(firstID, acmeKey)
			assert.Assert(t, again != f.url)
			f.post("/v1/shell/exec", `{"command":"true"}`).refuses(http.StatusNotFound, "SB013")
			f.post("/v1/bash/exec", `{"command":"true"}`).refuses(http.StatusGone, "SB013")
			f.url = again
			f.exec("true")
			assert.Assert(t, is.Len(f.box.Live(), 1))
		})
	}
}

// The first to notice may be the client that asks for it.
func TestACreateNoticesThatTheSandboxIsLost(t *testing.T) {
	f := start(t)
	f.box.ail(sdk.Errorf(sdk.CodeUnavailable, "the sandbox ended during the call"))
	f.box.Forget()
	assert.Assert(t, f.create(firstID, acmeKey) != f.url)
}

// A sandbox without its directories is not ready: clients would use it at once.
func TestASandboxWithoutItsDirectoriesIsNotFound(t *testing.T) {
	f := start(t)
	f.exec("rm -r " + f.box.root + "/mnt/user-data/outputs")
	f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).refuses(http.StatusNotFound, "SB013")
	assert.Equal(t, f.create(firstID, acmeKey), f.url)
	f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).wants(http.StatusOK)
}

// After a restart nobody knows what there is until the provider has said so. Nothing is
// denied meanwhile, and nothing confirmed that was not done.
func TestAfterARestartItIsWaitedForWhatTheProviderHas(t *testing.T) {
	operations := map[string]func(f *fixture) answer{
		"get":    func(f *fixture) answer { return f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey) },
		"delete": func(f *fixture) answer { return f.do(http.MethodDelete, "/api/sandboxes/"+firstID, "", acmeKey) },
		"create": func(f *fixture) answer {
			return f.do(http.MethodPost, "/api/sandboxes", `{"sandbox_id":"`+firstID+`"}`, acmeKey)
		},
		"a command": func(f *fixture) answer { return f.post("/v1/shell/exec", `{"command":"true"}`) },
	}
	for name, ask := range operations {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			if name != "a command" { // which has no deadline, and waits for longer
				early, _ := f.restarted(200 * time.Millisecond)
				ask(early).refuses(http.StatusServiceUnavailable, "SB009")
				assert.Assert(t, is.Len(f.box.Live(), 1))
			}
			next, reconcile := f.restarted(time.Minute)
			var told sync.WaitGroup
			told.Go(reconcile)
			ask(next).wants(http.StatusOK)
			told.Wait()
			if name == "delete" {
				assert.Assert(t, is.Len(f.box.Live(), 0))
				next.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).refuses(http.StatusNotFound, "SB013")
				return
			}
			assert.Equal(t, next.create(firstID, acmeKey), f.url)
			next.do(http.MethodDelete, "/api/sandboxes/"+firstID, "", acmeKey).wants(http.StatusOK)
			assert.Assert(t, is.Len(f.box.Live(), 0))
		})
	}
	t.Run("list", func(t *testing.T) {
		f := start(t)
		early, reconcile := f.restarted(200 * time.Millisecond)
		list := func(key string) string {
			return early.do(http.MethodGet, "/api/sandboxes", "", key).wants(http.StatusOK).text
		}
		assert.Check(t, is.Contains(list(acmeKey), f.url+`","status":"Unknown"}],"count":1}`))
		assert.Equal(t, list(rivalKey), `{"sandboxes":[],"count":0}`)
		reconcile()
		assert.Check(t, is.Contains(list(acmeKey), f.url+`","status":"Running"}],"count":1}`))
	})
	t.Run("what the provider has not", func(t *testing.T) {
		f := start(t)
		next, reconcile := f.restarted(time.Minute)
		f.box.Forget()
		reconcile()
		next.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).refuses(http.StatusNotFound, "SB013")
		next.post("/v1/shell/exec", `{"command":"true"}`).refuses(http.StatusNotFound, "SB013")
		assert.Assert(t, next.create(firstID, acmeKey) != f.url)
	})
}

func TestASandboxThatIsPausedIsResumedByItsCreator(t *testing.T) {
	f := start(t)
	ids := f.service.ListAll("acme", listAll).Instances
	_, err := f.service.Pause(t.Context(), tenant.Tenant{Name: "acme"}, ids[0].ID.String())
	assert.NilError(t, err)
	var seen struct{ Status string }
	f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).wants(http.StatusOK).decode(&seen)
	assert.Equal(t, seen.Status, "Pending", "clients ask for it again then")
	f.post("/v1/shell/exec", `{"command":"true"}`).refuses(http.StatusConflict, "SB014")
	assert.Equal(t, f.create(firstID, acmeKey), f.url)
	f.exec("true")
}

func TestASessionOfSomebodyElseIsNoSandbox(t *testing.T) {
	f := start(t)
	_, _, err := f.service.Create(t.Context(), tenant.Tenant{Name: "acme"}, createOf("taken"))
	assert.NilError(t, err)
	f.do(http.MethodGet, "/api/sandboxes/taken", "", acmeKey).refuses(http.StatusNotFound, "SB013")
	f.do(http.MethodPost, "/api/sandboxes", `{"sandbox_id":"taken"}`, acmeKey).refuses(http.StatusConflict, "SB014")
}

func TestAUseKeepsASandbox(t *testing.T) {
	f := start(t)
	expiry := func() time.Time { return f.service.ListAll("acme", listAll).Instances[0].ExpiresAt }
	for name, use := range map[string]func(){
		"a command": func() { f.exec("true") },
		"a file":    func() { f.post("/v1/file/list", `{"path":"/workspace"}`).wants(http.StatusOK) },
		"a look":    func() { f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).wants(http.StatusOK) },
	} {
		before := expiry()
		use()
		assert.Check(t, expiry().After(before), name)
	}
}

// What a door has kept of shells ends with its process. The next one finds them.
func TestAShellIsFoundAgainByTheNextProcess(t *testing.T) {
	f := start(t)
	f.exec("kept=value")
	next := f.another()
	assert.Equal(t, next.exec("echo $kept"), "value\n")
	next.post("/v1/shell/exec", `{"command":"sleep 1000","no_change_timeout":0.5}`).wants(http.StatusOK)
	last := f.another()
	assert.Equal(t, last.exec("echo [$kept]"), "[]\n", "a command hung in it")
}

func TestACommandThatHangsAndSaysNothingIsGivenUp(t *testing.T) {
	f := start(t)
	f.exec("kept=value; false")
	assert.Equal(t, f.exec("echo $? $kept"), "1 value\n")
	f.post("/v1/shell/exec", `{"command":"sleep 1000","no_change_timeout":0.5}`).wants(http.StatusOK)
	assert.Equal(t, f.exec("echo [$kept]"), "[]\n")
}

func TestCommandsOfOneShellWaitForEachOther(t *testing.T) {
	f := start(t)
	f.exec("mkfifo " + f.box.root + "/pipe")
	type outcome struct {
		answer
		err error
	}
	outcomes := make(chan outcome, 2)
	for range 2 {
		go func() {
			// A pipe that its reader may write to does not end for the second command when
			// what wrote to the first one closes it a moment late.
			a, err := f.ask(t.Context(), http.MethodPost, f.url+"/v1/shell/exec", `{"command":"echo begun; read -r line <>`+f.box.root+`/pipe; echo $line"}`)
			outcomes <- outcome{a, err}
		}()
	}
	for range 2 {
		f.post("/v1/bash/exec", `{"command":"echo text >`+f.box.root+`/pipe"}`).wants(http.StatusOK)
		got := <-outcomes
		assert.NilError(t, got.err)
		assert.Check(t, is.Contains(got.wants(http.StatusOK).text, `"status":"completed","output":"begun\ntext\n"`))
	}
}

func TestAClientThatLeavesGivesUpItsCommand(t *testing.T) {
	f := start(t)
	ctx, leave := context.WithCancel(t.Context())
	f.exec("mkfifo " + f.box.root + "/pipe")
	ended := make(chan error, 1)
	go func() {
		_, err := f.ask(ctx, http.MethodPost, f.url+"/v1/shell/exec", `{"command":"echo >`+f.box.root+`/pipe; sleep 1000"}`)
		ended <- err
	}()
	f.post("/v1/bash/exec", `{"command":"cat `+f.box.root+`/pipe"}`).wants(http.StatusOK)
	leave()
	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.Equal(t, f.exec("echo next"), "next\n")
}

func TestSessionsAreBounded(t *testing.T) {
	f := start(t)
	last := answer{}
	for i := range 17 {
		last = f.post("/v1/shell/sessions/create", `{"id":"s`+string(rune('a'+i))+`"}`)
	}
	last.refuses(http.StatusTooManyRequests, "SB008")
	f.do(http.MethodDelete, f.url+"/v1/shell/sessions/sa", "").wants(http.StatusOK)
	f.post("/v1/shell/sessions/create", `{"id":"sq"}`).wants(http.StatusOK)
}

func TestWhatIsNotServedIsRefusedByItsName(t *testing.T) {
	f := start(t)
	for _, test := range []struct{ path, body, field string }{
		{"/v1/shell/exec", `{"command":"x","async_mode":true}`, "async_mode"},
		{"/v1/shell/exec", `{"command":"x","exec_dir":"/tmp"}`, "exec_dir"},
		{"/v1/shell/exec", `{"command":"x","id":"../x"}`, "id"},
		{"/v1/shell/exec", `{"command":"x\u0000"}`, "command"},
		{"/v1/shell/exec", `{"command":"x","no_change_timeout":0}`, "no_change_timeout"},
		{"/v1/shell/exec", `{"command":"x","hard_timeout":-1}`, "hard_timeout"},
		{"/v1/shell/sessions/create", `{"exec_dir":"/tmp"}`, "exec_dir"},
		{"/v1/bash/exec", `{"command":"x","session_id":"a"}`, "session_id"},
		{"/v1/bash/exec", `{"command":"x","exec_dir":"a"}`, "exec_dir"},
		{"/v1/bash/exec", `{"command":"x","async_mode":true}`, "async_mode"},
		{"/v1/bash/exec", `{"command":"x","hard_timeout":0}`, "hard_timeout"},
		{"/v1/file/read", `{"file":"/a","sudo":true}`, "sudo"},
		{"/v1/file/read", `{"file":"/a","start_line":-1}`, "start_line"},
		{"/v1/file/read", `{"file":"/a","start_line":2,"end_line":1}`, "end_line"},
		{"/v1/file/find", `{"path":"/workspace","glob":"{"}`, "glob"},
		{"/v1/file/list", `{"path":"/workspace","file_types":[".py"]}`, "file_types"},
		{"/v1/file/grep", `{"path":"/workspace","pattern":"("}`, "pattern"},
		{"/v1/file/grep", `{"path":"/workspace","pattern":"x","exclude":["a"]}`, "exclude"},
		{"/v1/file/grep", `{"path":"/workspace","pattern":"x","context_before":1}`, "context_before"},
	} {
		a := f.post(test.path, test.body)
		a.refuses(http.StatusUnprocessableEntity, string(sdk.CodeInvalidRequest))
		assert.Check(t, is.Contains(a.text, `"`+test.field+`"]`), a.text)
	}
}

func TestACommandThatTakesTooLongIsEnded(t *testing.T) {
	f := start(t)
	var answered struct {
		Data struct{ Status, Output string }
	}
	f.post("/v1/shell/exec", `{"command":"sleep 1000","hard_timeout":0.2}`).wants(http.StatusOK).decode(&answered)
	assert.Equal(t, answered.Data.Status, "hard_timeout")
	f.post("/v1/shell/exec", `{"command":"seq 20000","truncate":true}`).wants(http.StatusOK).decode(&answered)
	assert.Check(t, len(answered.Data.Output) < 31_000)
	f.post("/v1/shell/exec", `{"command":"kill -9 $$"}`).wants(http.StatusOK).decode(&answered)
	f.exec("true")
}
