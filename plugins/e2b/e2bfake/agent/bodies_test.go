package agent

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

const good = ""

// What passes is for a process, a file or a directory that is not there, and is told so.
func TestRequestsToEnvdAreWhatIsPublished(t *testing.T) {
	handler := newEnvd(Config{Version: "0.6.13"}).handler(nil)
	for _, test := range []struct{ method, body, refusal string }{
		{"process.Process/List", `{}`, good},
		{"process.Process/List", ``, "unexpected"},
		{"process.Process/List", `[]`, "unexpected token"},
		{"process.Process/List", `{"all":true}`, `unknown field "all"`},
		{"process.Process/List", `{} {}`, "unexpected token"},
		{"process.Process/SendSignal", `{"process":{"pid":7},"signal":"SIGNAL_SIGTERM"}`, good},
		{"process.Process/SendSignal", `{"process":{"pid":7},"signal":"SIGTERM"}`, "invalid value for enum"},
		{"process.Process/SendSignal", `{"process":{"pid":7},"signal":2}`, "signal has no such value"},
		{"process.Process/SendSignal", `{"process":{"pid":7}}`, "signal is required"},
		{"process.Process/SendSignal", `{"signal":"SIGNAL_SIGKILL"}`, "process is required"},
		{"process.Process/SendSignal", `{"process":{},"signal":"SIGNAL_SIGKILL"}`, "process must say which"},
		{"process.Process/SendSignal", `{"process":{"pid":0},"signal":"SIGNAL_SIGKILL"}`, "process.pid must not be empty"},
		{"process.Process/SendSignal", `{"process":{"tag":""},"signal":"SIGNAL_SIGKILL"}`, "process.tag must not be empty"},
		{"process.Process/SendSignal", `{"process":{"pid":-1},"signal":"SIGNAL_SIGKILL"}`, "invalid value for uint32"},
		{"process.Process/SendSignal", `{"process":{"pid":4294967296},"signal":"SIGNAL_SIGKILL"}`, "invalid value for uint32"},
		{"process.Process/SendSignal", `{"process":{"pid":7,"tag":"a"},"signal":"SIGNAL_SIGKILL"}`, "oneof"},
		{"process.Process/SendSignal", `{"process":{"pid":7},"signal":"SIGNAL_SIGKILL","pid":7}`, `unknown field "pid"`},
		{"process.Process/SendInput", `{"process":{"pid":7},"input":{"stdin":"YQ=="}}`, good},
		{"process.Process/SendInput", `{"process":{"pid":7},"input":{"pty":""}}`, good},
		{"process.Process/SendInput", `{"process":{"pid":7},"input":{"stdin":"not base64!"}}`, "invalid value for bytes"},
		{"process.Process/SendInput", `{"process":{"pid":7},"input":{}}`, "input must say which"},
		{"process.Process/SendInput", `{"process":{"pid":7}}`, "input is required"},
		{"process.Process/SendInput", `{"process":{"pid":7},"input":{"stdin":"YQ==","pty":"YQ=="}}`, "oneof"},
		{"process.Process/CloseStdin", `{"process":{"tag":"a"}}`, good},
		{"process.Process/CloseStdin", `{"pid":7}`, `unknown field "pid"`},
		{"process.Process/Update", `{"process":{"pid":7},"pty":{"size":{"cols":80,"rows":24}}}`, good},
		{"process.Process/Update", `{"process":{"pid":7}}`, "pty is required"},
		{"process.Process/Update", `{"process":{"pid":7},"pty":{}}`, "pty.size is required"},
		{"process.Process/Update", `{"process":{"pid":7},"pty":{"size":{"cols":80}}}`, "pty.size.rows is required"},
		{"process.Process/Update", `{"process":{"pid":7},"pty":{"size":{"cols":65536,"rows":1}}}`, "pty.size.cols must be at most 65535"},
		{"process.Process/Connect", `{"process":{"pid":7}}`, good},
		{"process.Process/Connect", `{}`, "process is required"},
		{"process.Process/Start", `{"process":{"cmd":"/bin/true","cwd":"/nothing","args":["a"],"envs":{"A":"b"}},"tag":"t","stdin":false}`, good},
		{"process.Process/Start", `{"stdin":false}`, "process is required"},
		{"process.Process/Start", `{"process":{"cwd":"/nothing"}}`, "process.cmd is required"},
		{"process.Process/Start", `{"process":{"cmd":"a","cwd":"/nothing","args":"b"}}`, "unexpected token"},
		{"process.Process/Start", `{"process":{"cmd":"a","cwd":"/nothing","args":[1]}}`, "invalid value for string"},
		{"process.Process/Start", `{"process":{"cmd":"a","cwd":"/nothing","envs":{"A":1}}}`, "invalid value for string"},
		{"process.Process/Start", `{"process":{"cmd":"a","cwd":"/nothing","env":{}}}`, `unknown field "env"`},
		{"process.Process/Start", `{"process":{"cmd":"a","cwd":"/nothing"},"stdin":"no"}`, "invalid value for bool"},
		{"process.Process/Start", `{"process":{"cmd":"a","cwd":"/nothing"},"pty":{"size":{"cols":0,"rows":1}}}`, "pty.size.cols is required"},
		{"filesystem.Filesystem/Stat", `{"path":"/nothing"}`, good},
		{"filesystem.Filesystem/Stat", `{}`, "path is required"},
		{"filesystem.Filesystem/MakeDir", `{"path":7}`, "invalid value for string"},
		{"filesystem.Filesystem/Remove", `{"path":""}`, "path is required"},
		{"filesystem.Filesystem/WatchDir", `{"path":"/nothing","recursive":true,"includeEntry":false}`, good},
		{"filesystem.Filesystem/WatchDir", `{"path":"/nothing","recursive":1}`, "invalid value for bool"},
		{"filesystem.Filesystem/WatchDir", `{"recursive":true}`, "path is required"},
	} {
		t.Run(test.method+" "+test.body, func(t *testing.T) {
			refused := call(t, handler, test.method, test.body)
			if test.refusal == good {
				assert.Check(t, refused.Code != "invalid_argument" || strings.HasPrefix(refused.Message, "cwd "), "%+v", refused)
				return
			}
			assert.Equal(t, refused.Code, "invalid_argument", "%+v", refused)
			assert.Check(t, is.Contains(refused.Message, "validation error"))
			// The library takes care that nobody compares its messages: some blanks are others.
			assert.Check(t, is.Contains(strings.ReplaceAll(refused.Message, "\u00a0", " "), test.refusal))
		})
	}
}

// call makes a call, unary or not, and returns its error.
func call(t *testing.T, handler http.Handler, method, body string) (refused rpcError) {
	t.Helper()
	streams := strings.HasSuffix(method, "/Start") || strings.HasSuffix(method, "/Connect") || strings.HasSuffix(method, "/WatchDir")
	kind := "application/json"
	if streams {
		kind, body = "application/connect+json", envelope(0, body)
	}
	answer := post(t, handler, "/"+method, kind, body)
	if !streams {
		if answer.Code != http.StatusOK {
			assert.NilError(t, json.Unmarshal(answer.Body.Bytes(), &refused))
			assert.Equal(t, answer.Code, httpStatuses[refused.Code])
		}
		return refused
	}
	assert.Equal(t, answer.Code, http.StatusOK)
	var end struct{ Error rpcError }
	assert.NilError(t, json.Unmarshal(answer.Body.Bytes()[5:], &end))
	return end.Error
}

func envelope(flags byte, body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(body)))) + body
}

func post(t *testing.T, handler http.Handler, path, kind, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", kind)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, r)
	return answer
}

func TestAStreamIsAskedForInOneEnvelope(t *testing.T) {
	handler := newEnvd(Config{Version: "0.6.13"}).handler(nil)
	one := envelope(0, `{"process":{"pid":7}}`)
	for name, test := range map[string]struct{ body, code string }{
		"one":           {one, "not_found"},
		"none":          {"", "invalid_argument"},
		"bare":          {`{"process":{"pid":7}}`, "invalid_argument"},
		"cut":           {one[:len(one)-1], "invalid_argument"},
		"two":           {one + one, "invalid_argument"},
		"compressed":    {envelope(1, `{"process":{"pid":7}}`), "invalid_argument"},
		"with its end":  {one + envelope(2, `{}`), "invalid_argument"},
		"nothing in it": {envelope(0, ``), "invalid_argument"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := post(t, handler, "/process.Process/Connect", "application/connect+json", test.body)
			var end struct{ Error rpcError }
			assert.NilError(t, json.Unmarshal(answer.Body.Bytes()[5:], &end))
			assert.Equal(t, end.Error.Code, test.code, "%+v", end.Error)
		})
	}
}

// What passes is for a context that is not there.
func TestBodiesForTheCodeInterpreterAreWhatIsPublished(t *testing.T) {
	handler := newInterpreter(nil).handler()
	for _, test := range []struct{ path, body, refusal string }{
		{"/execute", `{"code":"1","context_id":"nothing"}`, good},
		{"/execute", `{"code":"","context_id":"nothing","language":null}`, good},
		{"/execute", `{"context_id":"nothing"}`, "code is required"},
		{"/execute", `{"code":null,"context_id":"nothing"}`, "code must be a string"},
		{"/execute", `{"code":["1"],"context_id":"nothing"}`, "code must be a string"},
		{"/execute", `{"code":"1","contextId":"nothing"}`, "contextId is not known"},
		{"/execute", `{"code":"1","context_id":7}`, "context_id must be a string"},
		{"/execute", `{"code":"1","env_vars":{}}`, "env_vars asks for what the fake does not have"},
		{"/execute", `{"code":"1"`, "is no JSON"},
		{"/execute", ``, "is no JSON"},
		{"/contexts", `{"language":7}`, "language must be a string"},
		{"/contexts", `{"cwd":false}`, "cwd must be a string"},
		{"/contexts", `{"env":{}}`, "env is not known"},
		{"/contexts", `"python"`, "must be an object"},
	} {
		t.Run(test.path+" "+test.body, func(t *testing.T) {
			answer := post(t, handler, test.path, "application/json", test.body)
			if test.refusal == good {
				assert.Equal(t, answer.Code, http.StatusNotFound)
				return
			}
			assert.Equal(t, answer.Code, http.StatusUnprocessableEntity)
			assert.Check(t, is.Contains(answer.Body.String(), test.refusal))
		})
	}
	answer := post(t, handler, "/execute", "text/plain", `{"code":"1","context_id":"nothing"}`)
	assert.Equal(t, answer.Code, http.StatusUnprocessableEntity)
}
