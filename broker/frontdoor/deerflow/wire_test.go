package deerflow_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/deerflow"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/frontdoortest"
)

// A transcript is a request and its answer as bytes on the wire, in the forms of DeerFlow's
// own client and of the Python SDK of the all-in-one sandbox.

var (
	changes = regexp.MustCompile(`((?:Date|Last-Modified|Etag): ).*`)
	lengths = regexp.MustCompile(`(Content-Length: )\d+`)
	chunks  = regexp.MustCompile(`(?m)^[0-9a-f]+$\n`)
	tokens  = regexp.MustCompile(`[a-z2-7]{20}-[0-9a-f]{40}`)
	ids     = regexp.MustCompile(`"(session_id|command_id)":"(?:c-)?[A-Za-z0-9]{16,}"`)
	times   = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	runtime = regexp.MustCompile(`"runtime":.*,"utils"`)
	system  = regexp.MustCompile(`"(os|os_version|arch|user|timezone)":"[^"]+"`)
)

func (f *fixture) wire(method, path, body string, headers ...string) string {
	f.t.Helper()
	sent := fmt.Sprintf("%s /deerflow%s HTTP/1.1\r\nHost: broker.example:8002\r\nX-Request-ID: r1\r\nConnection: close\r\n", method, path)
	for _, header := range headers {
		sent += header + "\r\n"
	}
	if body != "" {
		sent += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	sent += "\r\n" + body
	got, err := frontdoortest.Exchange(f.address, sent, nil)
	assert.NilError(f.t, err, got)
	text := strings.ReplaceAll(">>> "+sent+"\n<<< "+got+"\n\n", "\r\n", "\n")
	text = tokens.ReplaceAllString(changes.ReplaceAllString(text, "${1}{changes}"), "{token}")
	if strings.Contains(text, "Transfer-Encoding: chunked") {
		text = chunks.ReplaceAllString(text, "{size}\n")
	}
	text = runtime.ReplaceAllString(text, `"runtime":{some},"utils"`)
	text = system.ReplaceAllString(times.ReplaceAllString(ids.ReplaceAllString(text, `"$1":"{id}"`), "{time}"), `"$1":"{some}"`)
	return strings.ReplaceAll(lengths.ReplaceAllString(text, "${1}{length}"), f.box.root, "{root}")
}

func TestTheProvisionerOnTheWire(t *testing.T) {
	f := start(t)
	const create = `{"sandbox_id": "a1b2c3d4e5f60718", "thread_id": "t-1", "user_id": "u_1", "include_legacy_skills": false, "provision_lark_cli_runtime": false, "provision_lark_cli_broker": false}`
	golden.Assert(t, strings.Join([]string{
		f.wire(http.MethodGet, "/health", ""),
		f.wire(http.MethodGet, "/api/capabilities", "", acmeKey),
		f.wire(http.MethodGet, "/api/sandboxes/a1b2c3d4e5f60718", "", acmeKey),
		f.wire(http.MethodPost, "/api/sandboxes", create, acmeKey),
		f.wire(http.MethodPost, "/api/sandboxes", create, acmeKey),
		f.wire(http.MethodGet, "/api/sandboxes/a1b2c3d4e5f60718", "", acmeKey),
		f.wire(http.MethodGet, "/api/sandboxes", "", acmeKey),
		f.wire(http.MethodDelete, "/api/sandboxes/a1b2c3d4e5f60718", "", acmeKey),
		f.wire(http.MethodDelete, "/api/sandboxes/a1b2c3d4e5f60718", "", acmeKey),
		f.wire(http.MethodPost, "/api/sandboxes", `{"sandbox_id": "../x", "thread_id": 1}`, acmeKey),
		f.wire(http.MethodPost, "/api/sandboxes", `{`, acmeKey),
		f.wire(http.MethodPost, "/api/sandboxes", `[]`, acmeKey),
		f.wire(http.MethodGet, "/api/sandboxes", ""),
	}, ""), "provisioner.golden")
}

func TestASandboxOnTheWire(t *testing.T) {
	f := start(t)
	post := func(path, body string) string { return f.wire(http.MethodPost, f.url+path, body) }
	golden.Assert(t, strings.Join([]string{
		f.wire(http.MethodGet, f.url+"/v1/sandbox", ""),
		post("/v1/shell/exec", `{"command": "echo out; echo err >&2; false", "no_change_timeout": 600}`),
		post("/v1/shell/exec", `{"command": "echo begun; sleep 1000", "no_change_timeout": 3}`),
		post("/v1/shell/exec", `{"command": "exit 3", "no_change_timeout": 600}`),
		post("/v1/shell/sessions/create", `{"id": "retry-1"}`),
		post("/v1/shell/exec", `{"command": "echo again", "no_change_timeout": 600, "id": "retry-1"}`),
		f.wire(http.MethodDelete, f.url+"/v1/shell/sessions/retry-1", ""),
		post("/v1/bash/exec", `{"command": "echo $A; echo err >&2; exit 3", "env": {"A": "b"}, "hard_timeout": 600.0}`),
		post("/v1/bash/exec", `{"command": "sleep 1000", "env": {}, "hard_timeout": 0.1}`),
		post("/v1/file/write", `{"file": "/mnt/user-data/outputs/a.txt", "content": "one\ntwo \u00e9 \ud83e\udd8c\n"}`),
		post("/v1/file/write", `{"file": "/mnt/user-data/uploads/b.bin", "content": "AAEC/w==", "encoding": "base64"}`),
		post("/v1/file/read", `{"file": "/mnt/user-data/outputs/a.txt"}`),
		post("/v1/file/read", `{"file": "/mnt/user-data/outputs/a.txt", "start_line": 1, "end_line": 2}`),
		post("/v1/file/read", `{"file": "/mnt/user-data/none"}`),
		post("/v1/file/read", `{"file": "/mnt/user-data/uploads/b.bin"}`),
		post("/v1/file/find", `{"path": "/mnt/user-data", "glob": "**/*.txt"}`),
		post("/v1/file/list", `{"path": "/mnt/user-data", "recursive": true, "show_hidden": false}`),
		post("/v1/file/grep", `{"path": "/mnt/user-data", "pattern": "^two", "case_insensitive": false, "fixed_strings": false, "max_results": 100, "max_file_size": "1M", "recursive": true}`),
		f.wire(http.MethodGet, f.url+"/v1/file/download?path=%2Fmnt%2Fuser-data%2Foutputs%2Fa.txt", ""),
		f.wire(http.MethodGet, f.url+"/v1/file/download?path=%2Fmnt%2Fuser-data%2Foutputs%2Fa.txt", "", "Range: bytes=4-6"),
		f.wire(http.MethodGet, f.url+"/v1/file/download", ""),
		post("/v1/file/write", `{"file": "/mnt/user-data/x", "content": "!", "encoding": "base64"}`),
		post("/v1/file/write", `{"content": "x"}`),
		post("/v1/shell/exec", `{"command": 1}`),
		post("/v1/browser/click", `{}`),
	}, ""), "sandbox.golden")
}

// A route that is new needs a golden file with a request, and nothing here.
func TestEachRouteHasATranscript(t *testing.T) {
	operations := start(t).server.Operations(deerflow.Name)
	assert.Assert(t, is.Len(operations, 17))
	missing, err := frontdoortest.Untranscribed(operations, "/deerflow")
	assert.NilError(t, err)
	assert.Equal(t, strings.Join(missing, "\n"), "")
}
