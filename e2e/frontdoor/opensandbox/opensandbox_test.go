// Package opensandbox_test has OpenSandbox's published SDK use sandboxes through the front
// door.
package opensandbox_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
)

func TestMain(m *testing.M) {
	e2bfake.Main()
	os.Exit(m.Run())
}

const door = "front_door \"opensandbox\" {\n  images = { \"python:3.12\" = \"\" }\n}\n"

// client installs the SDK.
func client(t *testing.T) string {
	t.Helper()
	binaries.Needs(t, "npm", "npm")
	dir := t.TempDir()
	assert.NilError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "client"))))
	install := exec.Command("npm", "install", "--no-save", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		binaries.Missing(t, "npm cannot install OpenSandbox's SDK: "+string(out))
	}
	return dir
}

// use has the SDK use a sandbox, and returns which optional features worked.
func use(t *testing.T, dir string, b *harness.Broker, mode string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "client.mjs", b.URL+"/opensandbox", harness.Token, mode)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return string(out)
}

func TestTheSDKUsesSandboxesOfGVisor(t *testing.T) {
	b, dir := frontdoor.Real(t, strings.Replace(door, "\n}", "\n  network = \"deny\"\n}", 1)), client(t)
	for _, mode := range []string{"direct", "proxy", "keyless"} {
		t.Run(mode, func(t *testing.T) {
			assert.Equal(t, use(t, dir, b, mode), "sessions works\nterminals works\nmetrics works\npause works\ndone\n")
		})
	}
	t.Run("which nobody else can", func(t *testing.T) { strangers(t, b) })
	t.Run("10,000 requests of nonsense", func(t *testing.T) { nonsense(t, b) })
}

func TestTheSDKUsesSandboxesOfACloud(t *testing.T) {
	t.Setenv("NETWORK", "allow") // where nobody promises more
	b, dir := frontdoor.Cloud(t, door), client(t)
	out := use(t, dir, b, "direct")
	assert.Check(t, is.Equal(out, "sessions refused\nterminals works\nmetrics works\npause works\ndone\n"))
}

// do sends one request and reads the answer.
func do(t *testing.T, method, url string, headers map[string]string, body string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	assert.NilError(t, err)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	return resp.StatusCode, string(read)
}

func key(token string) map[string]string { return map[string]string{"OPEN-SANDBOX-API-KEY": token} }

// strangers have the token of another sandbox, or of another tenant, or none.
func strangers(t *testing.T, b *harness.Broker) {
	base := b.URL + "/opensandbox"
	make := func(token string) (id, access string) {
		status, text := do(t, http.MethodPost, base+"/v1/sandboxes", key(token), `{"image":{"uri":"python:3.12"},"timeout":600}`)
		assert.Equal(t, status, http.StatusAccepted, text)
		var made struct{ ID string }
		assert.NilError(t, json.Unmarshal([]byte(text), &made))
		status, text = do(t, http.MethodGet, base+"/v1/sandboxes/"+made.ID+"/endpoints/44772", key(token), "")
		assert.Equal(t, status, http.StatusOK, text)
		var endpoint struct{ Headers map[string]string }
		assert.NilError(t, json.Unmarshal([]byte(text), &endpoint))
		return made.ID, endpoint.Headers["X-EXECD-ACCESS-TOKEN"]
	}
	mine, mineToken := make(harness.Token)
	theirs, theirToken := make(harness.OtherToken)
	access := func(token string) map[string]string { return map[string]string{"X-EXECD-ACCESS-TOKEN": token} }
	for name, test := range map[string]struct {
		path    string
		headers map[string]string
		status  int
	}{
		"its own token":                   {"/sandboxes/" + mine + "/proxy/44772/ping", access(mineToken), 200},
		"its tenant's key":                {"/v1/sandboxes/" + mine + "/proxy/44772/ping", key(harness.Token), 200},
		"its tenant's key for a token":    {"/sandboxes/" + mine + "/proxy/44772/ping", access(harness.Token), 200},
		"another sandbox's token":         {"/sandboxes/" + mine + "/proxy/44772/ping", access(theirToken), 404},
		"another tenant's key":            {"/sandboxes/" + theirs + "/proxy/44772/ping", key(harness.Token), 404},
		"another tenant's sandbox":        {"/v1/sandboxes/" + theirs, key(harness.Token), 404},
		"a sandbox that there is not":     {"/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa", key(harness.Token), 404},
		"no key":                          {"/v1/sandboxes/" + mine, nil, 401},
		"a token where a key is expected": {"/v1/sandboxes/" + mine, access(mineToken), 401},
		"no token":                        {"/sandboxes/" + mine + "/proxy/44772/ping", nil, 401},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := do(t, http.MethodGet, base+test.path, test.headers, "")
			assert.Equal(t, status, test.status, text)
			assert.Check(t, status == http.StatusOK || strings.Contains(text, `"code":"SB01`), text)
		})
	}
	answer := b.Do(http.MethodGet, "/api/v1/instances", harness.Token, nil)
	assert.Check(t, is.Contains(string(answer.Body), `"front_door":"opensandbox"`))
	for id, token := range map[string]string{mine: harness.Token, theirs: harness.OtherToken} {
		status, text := do(t, http.MethodDelete, base+"/v1/sandboxes/"+id, key(token), "")
		assert.Equal(t, status, http.StatusNoContent, text)
	}
	status, _ := do(t, http.MethodGet, base+"/sandboxes/"+mine+"/proxy/44772/ping", access(mineToken), "")
	assert.Equal(t, status, http.StatusNotFound, "the token has ended with its sandbox")
}

// nonsense sends what no client would, and wants a refusal in the door's form each time.
func nonsense(t *testing.T, b *harness.Broker) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same each time
	base := b.URL + "/opensandbox"
	status, text := do(t, http.MethodPost, base+"/v1/sandboxes", key(harness.Token), `{"image":{"uri":"python:3.12"},"timeout":600}`)
	assert.Equal(t, status, http.StatusAccepted, text)
	var made struct{ ID string }
	assert.NilError(t, json.Unmarshal([]byte(text), &made))
	port := "/sandboxes/" + made.ID + "/proxy/44772"
	routes := []struct{ method, path string }{
		{"POST", "/v1/sandboxes"},
		{"GET", "/v1/sandboxes?page=0"},
		{"PATCH", "/v1/sandboxes/" + made.ID + "/metadata"},
		{"POST", "/v1/sandboxes/" + made.ID + "/renew-expiration"},
		{"GET", "/v1/sandboxes/" + made.ID + "/endpoints/0"},
		{"POST", port + "/command"},
		{"POST", port + "/code"},
		{"POST", port + "/code/context"},
		{"POST", port + "/session/x/run"},
		{"POST", port + "/pty"},
		{"POST", port + "/files/upload"},
		{"POST", port + "/files/mv"},
		{"POST", port + "/files/permissions"},
		{"POST", port + "/files/replace"},
		{"GET", port + "/files/download"},
		{"GET", port + "/directories/list?path=/x&depth=-1"},
		{"DELETE", port + "/directories?path="},
		{"GET", port + "/nowhere"},
		{"POST", port + "/directories"},
		{"DELETE", port + "/command"},
		{"GET", "/v1/sandboxes/x%2Fy"},
	}
	pieces := []string{`{`, `}`, `"command"`, `"image"`, `:`, `"!!!"`, `null`, `[`, `]`, `,`, `"timeout"`, `-1`, `1e999`, `{}`, `"path"`, "\x00", `"\ud800"`, `true`}
	for range 10_000 {
		var body strings.Builder
		for range 1 + random.IntN(12) {
			body.WriteString(pieces[random.IntN(len(pieces))])
		}
		route := routes[random.IntN(len(routes))]
		sent := body.String()
		if json.Valid([]byte(sent)) {
			sent += "}" // [] and {} are right for some
		}
		status, text := do(t, route.method, base+route.path, key(harness.Token), sent)
		told := struct{ Code, Message string }{}
		err := json.Unmarshal([]byte(text), &told)
		assert.Assert(t, status >= 400 && status < 500, "%s %s %s: %d %s", route.method, route.path, sent, status, text)
		assert.Assert(t, err == nil && strings.HasPrefix(told.Code, "SB") && told.Message != "", fmt.Sprint(route, sent, text))
	}
	status, text = do(t, http.MethodDelete, base+"/v1/sandboxes/"+made.ID, key(harness.Token), "")
	assert.Equal(t, status, http.StatusNoContent, text)
}
