package daytonafake_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
)

func TestMain(m *testing.M) {
	daytonafake.Main()
	goleak.VerifyTestMain(m)
}

// cloud starts a fake.
func cloud(t *testing.T, options daytonafake.Options) *daytonafake.Server {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	s, err := daytonafake.Start(options)
	assert.NilError(t, err)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		assert.Check(t, s.Close())
	})
	return s
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	text   string
}

func (r reply) object(t *testing.T) map[string]any {
	t.Helper()
	var o map[string]any
	assert.NilError(t, json.Unmarshal([]byte(r.text), &o), r.text)
	return o
}

// send makes a request with the key; "Name: value" are headers more.
func send(ctx context.Context, method, url, body string, headers ...string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer "+daytonafake.DefaultAPIKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text)}, err
}

// ask is send of what must be answered.
func ask(t *testing.T, method, url, body string, headers ...string) reply {
	t.Helper()
	r, err := send(t.Context(), method, url, body, headers...)
	assert.NilError(t, err)
	return r
}

// create makes a sandbox that has started, and returns its ID and the address of its toolbox.
func create(t *testing.T, s *daytonafake.Server, body string) (id, toolbox string) {
	t.Helper()
	made := ask(t, http.MethodPost, s.APIURL+"/sandbox", body)
	assert.Equal(t, made.status, 200, made.text)
	o := made.object(t)
	id = o["id"].(string)
	for o["state"] != "started" {
		o = ask(t, http.MethodGet, s.APIURL+"/sandbox/"+id, "").object(t)
	}
	return id, o["toolboxProxyUrl"].(string) + "/" + id
}

// run executes a command.
func run(t *testing.T, toolbox, command string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"command": command})
	assert.NilError(t, err)
	r := ask(t, http.MethodPost, toolbox+"/process/execute", string(text))
	assert.Equal(t, r.status, 200, r.text)
	return r.object(t)["result"].(string)
}

func upload(t *testing.T, toolbox string, parts ...string) reply {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i := 0; i < len(parts); i += 2 {
		if strings.HasSuffix(parts[i], "path") {
			assert.NilError(t, w.WriteField(parts[i], parts[i+1]))
			continue
		}
		part, err := w.CreateFormFile(parts[i], "f")
		assert.NilError(t, err)
		_, err = io.WriteString(part, parts[i+1])
		assert.NilError(t, err)
	}
	assert.NilError(t, w.Close())
	return ask(t, http.MethodPost, toolbox+"/files/bulk-upload", body.String(), "Content-Type: "+w.FormDataContentType())
}

func TestASandboxLives(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	id, toolbox := create(t, s, `{"labels":{"a":"b"},"env":{"GREETING":"moin"}}`)
	assert.Equal(t, run(t, toolbox, `echo "$GREETING"; echo err >&2; whoami; pwd`), "moin\nerr\ndaytona\n/home/daytona\n")
	assert.Equal(t, upload(t, toolbox, "files[0].path", "/workspace/a/b", "files[0].file", "hello").status, 200)
	assert.Equal(t, ask(t, http.MethodGet, toolbox+"/files/download?path=/workspace/a/b", "").text, "hello")
	missing := ask(t, http.MethodGet, toolbox+"/files/download?path=/workspace/c", "")
	assert.Equal(t, missing.status, 404)
	assert.Equal(t, missing.text, "")
	run(t, toolbox, "python3 -m http.server 8000 >/dev/null 2>&1 & until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))' 2>/dev/null; do :; done")
	link := ask(t, http.MethodGet, s.APIURL+"/sandbox/"+id+"/ports/8000/preview-url", "").object(t)
	token := "X-Daytona-Preview-Token: " + link["token"].(string)
	assert.Equal(t, ask(t, http.MethodGet, link["url"].(string), "").status, 307)
	assert.Equal(t, ask(t, http.MethodGet, link["url"].(string), "", "X-Daytona-Preview-Token: x").status, 401)
	assert.Check(t, is.Contains(ask(t, http.MethodGet, link["url"].(string), "", token).text, "about to visit"))
	assert.Check(t, is.Contains(ask(t, http.MethodGet, link["url"].(string), "", token, "X-Daytona-Skip-Preview-Warning: true").text, "Directory listing"))

	assert.Equal(t, ask(t, http.MethodPost, s.APIURL+"/sandbox/"+id+"/stop", "").object(t)["state"], "stopping")
	assert.Equal(t, ask(t, http.MethodPost, toolbox+"/process/execute", `{"command":"true"}`).status, 400)
	assert.Equal(t, ask(t, http.MethodGet, s.APIURL+"/sandbox/"+id, "").object(t)["state"], "stopping")
	assert.Equal(t, ask(t, http.MethodPost, s.APIURL+"/sandbox/"+id+"/start", "").object(t)["state"], "starting")
	assert.Equal(t, ask(t, http.MethodGet, s.APIURL+"/sandbox/"+id, "").object(t)["state"], "starting")
	assert.Equal(t, run(t, toolbox, "cat /workspace/a/b"), "hello")
	listed := ask(t, http.MethodGet, s.APIURL+"/sandbox?labels=%7B%22a%22:%22b%22%7D", "").object(t)
	assert.Equal(t, len(listed["items"].([]any)), 1)
	assert.Equal(t, ask(t, http.MethodDelete, s.APIURL+"/sandbox/"+id, "").object(t)["state"], "destroying")
	assert.Equal(t, ask(t, http.MethodGet, s.APIURL+"/sandbox/"+id, "").status, 200)
	assert.Equal(t, ask(t, http.MethodGet, s.APIURL+"/sandbox/"+id, "").status, 404)
}
