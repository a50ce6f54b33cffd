// Package opensandbox_test has OpenSandbox's published SDK use sandboxes through the front
// door.
package opensandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/npm"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

func TestMain(m *testing.M) { frontdoor.Main(m) }

// The door for sandboxes without a network, and for those of which nobody promises that.
const (
	door      = "front_door \"opensandbox\" {\n  network = \"deny\"\n  images = { \"python:3.12\" = \"\" }\n}\n"
	cloudDoor = "front_door \"opensandbox\" {\n  images = { \"python:3.12\" = \"\" }\n}\n"
)

// client installs the SDK.
func client(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	assert.NilError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "client"))))
	npm.Install(t, dir)
	return dir
}

// useTime is far more than a machine needs; a client that waits for what never comes would
// wait until its sandbox ends.
const useTime = 5 * time.Minute

// use has the SDK use a sandbox, and returns what it says of each feature.
func use(t *testing.T, dir, broker, mode, network string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), useTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "client.mjs", broker+"/opensandbox", harness.Token, mode, network)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	assert.NilError(t, err, "%s%s", out, &said)
	return string(out)
}

func TestTheSDKUsesSandboxesOnEachProvider(t *testing.T) {
	dir := client(t)
	var features frontdoor.Features
	frontdoor.Each(t, frontdoor.Aliyun, func(t *testing.T, provider string) {
		network, block := "deny", door
		if provider != frontdoor.SelfManaged {
			network, block = "allow", cloudDoor
		}
		b := frontdoor.On(t, provider, block)
		modes := []string{"direct"}
		if provider == frontdoor.SelfManaged {
			modes = append(modes, "proxy", "keyless") // which are the door's, whoever provides
		}
		for _, mode := range modes {
			t.Run(mode, func(t *testing.T) {
				if mode == "keyless" {
					tier.Full(t)
				}
				features.ReportOutput(t, provider, use(t, dir, b.URL, mode, network))
			})
		}
	})
	t.Run("through several brokers", func(t *testing.T) {
		features.ReportOutput(t, frontdoor.SelfManaged, use(t, dir, frontdoor.Several(t, door), "direct", "deny"))
	})
	if !t.Failed() {
		features.CheckPage(t, "opensandbox")
	}
}

func TestStrangersAndNonsense(t *testing.T) {
	b := frontdoor.Real(t, door)
	t.Run("strangers", func(t *testing.T) { strangers(t, b) })
	t.Run("the audit log says by which door", func(t *testing.T) { audited(t, b) })
	t.Run("a reload closes the door, moves it and opens it", func(t *testing.T) {
		id, access := create(t, b, harness.Token, usual)
		frontdoor.Reload(t, b, "opensandbox", door, "/health", func(t *testing.T, path string) {
			status, text := do(t, http.MethodGet, b.URL+path+"/v1/sandboxes/"+id+"/endpoints/44772", key(harness.Token), "")
			assert.Equal(t, status, http.StatusOK, text)
			assert.Check(t, is.Contains(text, path+"/sandboxes/"+id+"/proxy/44772"))
			status, text = do(t, http.MethodGet, b.URL+path+"/sandboxes/"+id+"/proxy/44772/ping", map[string]string{"X-EXECD-ACCESS-TOKEN": access}, "")
			assert.Equal(t, status, http.StatusOK, text) // the token is as it was
		})
		status, text := do(t, http.MethodDelete, b.URL+"/opensandbox/v1/sandboxes/"+id, key(harness.Token), "")
		assert.Equal(t, status, http.StatusNoContent, text)
	})
	t.Run("requests of nonsense", func(t *testing.T) { nonsense(t, b) })
}

// do sends one request and reads the answer.
func do(t testing.TB, method, url string, headers map[string]string, body string) (status int, text string) {
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

// create makes a sandbox, and returns its ID and its own token.
func create(t *testing.T, b *harness.Broker, token, body string) (id, access string) {
	t.Helper()
	base := b.URL + "/opensandbox"
	status, text := do(t, http.MethodPost, base+"/v1/sandboxes", key(token), body)
	assert.Equal(t, status, http.StatusAccepted, text)
	var made struct{ ID string }
	assert.NilError(t, json.Unmarshal([]byte(text), &made))
	status, text = do(t, http.MethodGet, base+"/v1/sandboxes/"+made.ID+"/endpoints/44772", key(token), "")
	assert.Equal(t, status, http.StatusOK, text)
	var endpoint struct{ Headers map[string]string }
	assert.NilError(t, json.Unmarshal([]byte(text), &endpoint))
	return made.ID, endpoint.Headers["X-EXECD-ACCESS-TOKEN"]
}

// audited wants a line by the door's name for each effect.
func audited(t *testing.T, b *harness.Broker) {
	id, _ := create(t, b, harness.Token, usual)
	for _, effect := range []struct{ method, path, body string }{
		{http.MethodPost, "/command", `{"command":"true"}`},
		{http.MethodPost, "/code/context", `{"language":"python"}`},
		{http.MethodPost, "/code", `{"code":"1","context":{"language":"python"}}`},
		{http.MethodPost, "/directories", `{"/tmp/made":{"mode":755}}`},
		{http.MethodDelete, "/directories?path=/tmp/made", ""},
	} {
		status, text := do(t, effect.method, b.URL+"/opensandbox/sandboxes/"+id+"/proxy/44772"+effect.path, key(harness.Token), effect.body)
		assert.Equal(t, status, http.StatusOK, text)
	}
	status, text := do(t, http.MethodDelete, b.URL+"/opensandbox/v1/sandboxes/"+id, key(harness.Token), "")
	assert.Equal(t, status, http.StatusNoContent, text)
	assert.DeepEqual(t, frontdoor.Audited(t, b, "opensandbox"), []string{
		"create_context", "create_instance", "destroy_instance", "execute_code", "make_directory", "remove_file", "run_command",
	})
}

// usual is the body of a request for a sandbox.
const usual = `{"image":{"uri":"python:3.12"},"timeout":600}`

// strangers have the token of another sandbox, or of another tenant, or none.
func strangers(t *testing.T, b *harness.Broker) {
	base := b.URL + "/opensandbox"
	make := func(token string) (id, access string) {
		return create(t, b, token, `{"image":{"uri":"python:3.12"},"timeout":600}`)
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
