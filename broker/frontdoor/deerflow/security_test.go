package deerflow_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The requirements of the provisioner's security, each with its test: the table of the
// door's page names them.

func TestTheKeyIsATenantsToken(t *testing.T) {
	f := start(t)
	for _, headers := range [][]string{nil, {"X-API-Key: wrong"}, {"X-API-Key: "}, {"Authorization: Bearer acme-token"}} {
		for _, op := range []struct{ method, path string }{
			{http.MethodPost, "/api/sandboxes"},
			{http.MethodGet, "/api/sandboxes"},
			{http.MethodGet, "/api/sandboxes/" + firstID},
			{http.MethodDelete, "/api/sandboxes/" + firstID},
			{http.MethodGet, "/api/capabilities"},
		} {
			f.do(op.method, op.path, `{"sandbox_id":"x"}`, headers...).refuses(http.StatusUnauthorized, "SB011")
		}
	}
	f.do(http.MethodGet, "/health", "").wants(http.StatusOK)
	assert.Assert(t, is.Len(f.box.Live(), 1))
}

func TestIDsOfSandboxesAndThreadsAreChecked(t *testing.T) {
	f := start(t)
	long := strings.Repeat("a", 64)
	for _, wrong := range []string{
		`{}`, `{"sandbox_id":null}`, `{"sandbox_id":""}`, `{"sandbox_id":1}`, `{"sandbox_id":"A"}`, `{"sandbox_id":"a/b"}`, `{"sandbox_id":".."}`,
		`{"sandbox_id":"../../etc"}`, `{"sandbox_id":"a b"}`, `{"sandbox_id":"a\nb"}`, `{"sandbox_id":"a\u0000"}`, `{"sandbox_id":"é"}`, `{"sandbox_id":"` + long + `"}`,
		`{"sandbox_id":"a","thread_id":"../x"}`, `{"sandbox_id":"a","thread_id":""}`, `{"sandbox_id":"a","thread_id":"` + long + `a"}`, `{"sandbox_id":"a","thread_id":"a;b"}`,
		`{"sandbox_id":"a","user_id":"a/../b"}`, `{"sandbox_id":"a","user_id":""}`, `{"sandbox_id":"a","user_id":"$(id)"}`,
	} {
		refused := f.do(http.MethodPost, "/api/sandboxes", wrong, acmeKey)
		refused.refuses(http.StatusUnprocessableEntity, "SB010")
		var told struct {
			Detail []struct {
				Loc       []any
				Msg, Type string
			}
		}
		refused.decode(&told)
		assert.Check(t, len(told.Detail) == 1 && told.Detail[0].Loc[0] == "body" && told.Detail[0].Msg != "" && told.Detail[0].Type != "", refused.text)
	}
	for _, path := range []string{"/api/sandboxes/A", "/api/sandboxes/a.b", "/api/sandboxes/" + long, "/api/sandboxes/a%00"} {
		f.do(http.MethodGet, path, "", acmeKey).refuses(http.StatusUnprocessableEntity, "SB010")
		f.do(http.MethodDelete, path, "", acmeKey).refuses(http.StatusUnprocessableEntity, "SB010")
	}
	for _, path := range []string{"/api/sandboxes/a%2Fb", "/api/sandboxes/%2e%2e"} {
		a := f.do(http.MethodGet, path, "", acmeKey)
		assert.Check(t, a.StatusCode == http.StatusNotFound || a.StatusCode == http.StatusUnprocessableEntity, a.text)
	}
	assert.Assert(t, is.Len(f.box.Live(), 1))
	f.do(http.MethodPost, "/api/sandboxes", `{"sandbox_id":"my-sandbox-123","thread_id":"T_1-x","user_id":"u_1","unknown":{}}`, acmeKey).wants(http.StatusOK)
}

func TestExtraMountsAreNeitherFollowedNorTrusted(t *testing.T) {
	f := start(t)
	mount := func(host, container string) string {
		text, _ := json.Marshal(map[string]any{"host_path": host, "container_path": container, "read_only": true})
		return string(text)
	}
	create := func(mounts ...string) answer {
		return f.do(http.MethodPost, "/api/sandboxes", `{"sandbox_id":"mounts","extra_mounts":[`+strings.Join(mounts, ",")+`]}`, acmeKey)
	}
	skills := mount("/data/skills", "/mnt/skills/custom")
	for name, mounts := range map[string][]string{
		"a place of no use":       {mount("/data", "/etc")},
		"a place above its place": {mount("/data", "/mnt/skills/custom/../../../etc")},
		"the host's own":          {mount("../data", "/mnt/skills/custom")},
		"a way out":               {mount("/data/../etc", "/mnt/skills/custom")},
		"twice":                   {skills, skills},
		"too many":                {skills, skills, skills, skills, skills, skills, skills, skills, skills, skills, skills},
	} {
		t.Run(name, func(t *testing.T) { create(mounts...).refuses(http.StatusBadRequest, "SB010") })
	}
	var made struct{ Ignored []string }
	create(skills).wants(http.StatusOK).decode(&made)
	assert.DeepEqual(t, made.Ignored, []string{"extra_mounts"})
	assert.Check(t, is.Contains(f.log.String(), "extra mounts are not served"))
	for _, created := range f.box.Created() {
		text, err := json.Marshal(created)
		assert.NilError(t, err)
		assert.Check(t, !strings.Contains(string(text), "skills"), "%s", text)
	}
}

func TestSandboxesOfOtherTenantsAreNone(t *testing.T) {
	f := start(t)
	f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", rivalKey).refuses(http.StatusNotFound, "SB013")
	assert.Equal(t, f.do(http.MethodGet, "/api/sandboxes", "", rivalKey).wants(http.StatusOK).text, `{"sandboxes":[],"count":0}`)
	f.do(http.MethodDelete, "/api/sandboxes/"+firstID, "", rivalKey).wants(http.StatusOK)
	f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).wants(http.StatusOK)
	theirs := f.create(firstID, rivalKey)
	assert.Assert(t, theirs != f.url, "the same ID is another sandbox")
	f.do(http.MethodDelete, "/api/sandboxes/"+firstID, "", rivalKey).wants(http.StatusOK)
	f.do(http.MethodGet, f.url+"/v1/sandbox", "").wants(http.StatusOK)
}

func TestTheTokenOfASandboxIsOfUseThereAlone(t *testing.T) {
	f := start(t)
	other := f.create("other", acmeKey)
	mine, theirs := strings.TrimPrefix(f.url, "/s/"), strings.TrimPrefix(other, "/s/")
	name, _, _ := strings.Cut(mine, "-")
	_, mac, _ := strings.Cut(theirs, "-")
	for _, token := range []string{name + "-" + mac, name, name + "-", strings.ToUpper(mine), mine + "0", mine[:len(mine)-1], "x", "-", "%00", "acme-token"} {
		f.do(http.MethodGet, "/s/"+token+"/v1/sandbox", "", acmeKey).refuses(http.StatusNotFound, "SB013")
		f.do(http.MethodPost, "/s/"+token+"/v1/shell/exec", `{"command":"true"}`, acmeKey).refuses(http.StatusNotFound, "SB013")
		f.do(http.MethodPost, "/s/"+token+"/v1/bash/exec", `{"command":"true"}`, acmeKey).refuses(http.StatusGone, "SB013")
	}
	// It ends with the sandbox, and the next one of the ID has another.
	f.do(http.MethodDelete, "/api/sandboxes/"+firstID, "", acmeKey).wants(http.StatusOK)
	f.do(http.MethodGet, f.url+"/v1/sandbox", "").refuses(http.StatusNotFound, "SB013")
	assert.Assert(t, f.create(firstID, acmeKey) != f.url)
	f.do(http.MethodGet, f.url+"/v1/sandbox", "").refuses(http.StatusNotFound, "SB013")
}

func TestPathsOfFilesLeadNowhereElse(t *testing.T) {
	f := start(t)
	outside := filepath.Join(filepath.Dir(f.box.root), "outside")
	assert.NilError(t, os.WriteFile(outside, []byte("secret of the host"), 0o600))
	assert.NilError(t, os.Symlink(outside, filepath.Join(f.box.root, "workspace", "link")))
	for _, path := range []string{"/../outside", "/mnt/user-data/../../../outside", outside, "/workspace/link"} {
		text, err := json.Marshal(path)
		assert.NilError(t, err)
		for _, ask := range []struct{ route, body string }{
			{"/v1/file/read", `{"file":` + string(text) + `}`},
			{"/v1/file/grep", `{"pattern":"secret","path":` + string(text) + `}`},
			{"/v1/file/list", `{"path":` + string(text) + `}`},
			{"/v1/file/find", `{"glob":"*","path":` + string(text) + `}`},
		} {
			a := f.post(ask.route, ask.body)
			assert.Check(t, a.StatusCode >= 400 || !strings.Contains(a.text, "secret of"), "%s %s: %s", ask.route, path, a.text)
		}
		a := f.do(http.MethodGet, f.url+"/v1/file/download?path="+path, "")
		assert.Check(t, a.StatusCode >= 400 && !strings.Contains(a.text, "secret of"), a.text)
		f.post("/v1/file/write", `{"file":`+string(text)+`,"content":"overwritten"}`)
		content, err := os.ReadFile(outside)
		assert.NilError(t, err)
		assert.Equal(t, string(content), "secret of the host")
	}
	for _, path := range []string{"", "relative", "~/x", `/a\u0000b`, "/" + strings.Repeat("a", 4096)} {
		f.post("/v1/file/read", `{"file":"`+path+`"}`).refuses(http.StatusUnprocessableEntity, "SB010")
		f.post("/v1/file/write", `{"file":"`+path+`","content":""}`).refuses(http.StatusUnprocessableEntity, "SB010")
	}
}

func TestSecretsAreInNoLogAndInNoRefusal(t *testing.T) {
	f := start(t)
	f.exec("export IN_SHELL=secret-of-shell")
	f.post("/v1/bash/exec", `{"command":"echo $A","env":{"A":"secret-of-env"}}`).wants(http.StatusOK)
	refused := f.post("/v1/bash/exec", `{"command":"echo $A","env":{"A B":"secret-of-env"}}`)
	refused.refuses(http.StatusUnprocessableEntity, "SB010")
	f.do(http.MethodPost, "/api/sandboxes", `{"sandbox_id":"x"}`, "X-API-Key: secret-of-stranger").refuses(http.StatusUnauthorized, "SB011")
	f.post("/v1/file/write", `{"file":"/workspace/a","content":"secret-of-file"}`).wants(http.StatusOK)
	f.post("/v1/none", `{}`).refuses(http.StatusNotFound, "SB013")
	token := strings.TrimPrefix(f.url, "/s/")
	for _, secret := range []string{token, "acme-token", "secret-of"} {
		assert.Check(t, !strings.Contains(f.log.String(), secret), "%s is in the log", secret)
		assert.Check(t, !strings.Contains(refused.text, secret), refused.text)
	}
	assert.Check(t, is.Contains(f.log.String(), "/deerflow/s/{sandbox}/v1/bash/exec"), "the log has the request")
}

func TestAnEnvironmentIsSeenByItsProgramAlone(t *testing.T) {
	f := start(t)
	var answered struct{ Data struct{ Stdout string } }
	f.post("/v1/bash/exec", `{"command":"echo $A","env":{"A":"secret-of-env"}}`).wants(http.StatusOK).decode(&answered)
	assert.Equal(t, answered.Data.Stdout, "secret-of-env\n")
	assert.Equal(t, f.exec("echo [$A]"), "[]\n")
	f.post("/v1/bash/exec", `{"command":"echo [$A]"}`).wants(http.StatusOK).decode(&answered)
	assert.Equal(t, answered.Data.Stdout, "[]\n")
	f.box.mu.Lock()
	defer f.box.mu.Unlock()
	for _, asked := range f.box.asked {
		assert.Check(t, !strings.Contains(strings.Join(asked.Argv, " "), "secret-of-env"), "arguments are in /proc, and in the audit log")
	}
}

// The original leaves behind what it could not remove, and forgets it.
func TestAnEndThatIsNotConfirmedIsNotTold(t *testing.T) {
	f := start(t)
	var fails atomic.Bool
	fails.Store(true)
	f.box.OnDestroy = func(context.Context, string) error {
		if fails.Load() {
			return sdk.Errorf(sdk.CodeUnavailable, "no answer")
		}
		return nil
	}
	for range 2 {
		f.do(http.MethodDelete, "/api/sandboxes/"+firstID, "", acmeKey).refuses(http.StatusServiceUnavailable, "SB009")
	}
	f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).refuses(http.StatusNotFound, "SB013")
	f.post("/v1/shell/exec", `{"command":"true"}`).refuses(http.StatusNotFound, "SB013")
	assert.Assert(t, is.Len(f.box.Live(), 1))
	fails.Store(false)
	f.do(http.MethodDelete, "/api/sandboxes/"+firstID, "", acmeKey).wants(http.StatusOK)
	assert.Assert(t, is.Len(f.box.Live(), 0))
}

// The original ends nothing by itself: what a gateway has forgotten stays.
func TestASandboxThatNobodyUsesEnds(t *testing.T) {
	f := start(t, func(s *frontdoor.Settings) { s.Lease = 300 * time.Millisecond })
	poll.WaitOn(t, func(poll.LogT) poll.Result { // a look would keep it
		return poll.Compare(is.Len(f.box.Live(), 0))
	}, poll.WithTimeout(time.Minute), poll.WithDelay(20*time.Millisecond))
	f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).refuses(http.StatusNotFound, "SB013")
	f.post("/v1/shell/exec", `{"command":"true"}`).refuses(http.StatusNotFound, "SB013")
}

func TestNoFailureIsToldAsDone(t *testing.T) {
	f := start(t)
	for _, info := range sdk.CodeTable() {
		f.box.writing = sdk.Errorf(info.Code, "no")
		a := f.post("/v1/file/write", `{"file":"/workspace/a","content":"x"}`)
		assert.Check(t, a.StatusCode >= 400, "%s: %d", info.Code, a.StatusCode)
		assert.Check(t, is.Contains(a.text, `"success":false`))
	}
}
