package e2b_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// canary stands in all that the other tenant has.
const canary = "canary-of-rival"

// victim is a sandbox, with what there is to be found in it.
type victim struct {
	key, sandbox, access, traffic string
	context, process, watcher     string
}

// ask asks a sandbox itself, or, where path is one of the API about sandboxes, that.
func (v victim) ask(t *testing.T, b *harness.Broker, method, path, contentType, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.URL+"/e2b"+path, strings.NewReader(body))
	assert.NilError(t, err)
	req.Header = v.headers()
	req.Header.Set("Content-Type", contentType)
	connections := &http.Client{Transport: &http.Transport{}}
	defer connections.CloseIdleConnections()
	resp, err := connections.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	var text []byte
	if contentType == "application/connect+json" { // whose process goes on when this has its first message
		text = make([]byte, 5)
		_, err = io.ReadFull(resp.Body, text)
		assert.NilError(t, err)
		text = make([]byte, binary.BigEndian.Uint32(text[1:]))
		_, err = io.ReadFull(resp.Body, text)
	} else {
		text, err = io.ReadAll(resp.Body)
	}
	assert.NilError(t, err)
	assert.Assert(t, resp.StatusCode < 300, "%s %s: %d %s", method, path, resp.StatusCode, text)
	return string(text)
}

func (v victim) headers() http.Header {
	header := http.Header{"X-Api-Key": {v.key}}
	if v.sandbox != "" {
		header.Set("E2b-Sandbox-Id", v.sandbox)
		header.Set("X-Access-Token", v.access)
	}
	return header
}

const asJSON = "application/json"

var pid = regexp.MustCompile(`"pid":(\d+)`)

func newVictim(t *testing.T, b *harness.Broker, key, secret string) victim {
	t.Helper()
	v := victim{key: key}
	var told struct {
		SandboxID, EnvdAccessToken, TrafficAccessToken, ID, WatcherID string
	}
	ask := func(path, contentType, body string) string {
		text := v.ask(t, b, http.MethodPost, path, contentType, body)
		_ = json.Unmarshal([]byte(text), &told) // where it is an object
		return text
	}
	ask("/v2/sandboxes", asJSON, `{"templateID":"base","timeout":3600,"envVars":{"SECRET":"`+secret+`"},"metadata":{"owner":"`+secret+`"}}`)
	v.sandbox, v.access, v.traffic = told.SandboxID, told.EnvdAccessToken, told.TrafficAccessToken
	ask("/files?path=/tmp/secret", "application/octet-stream", secret)
	ask("/contexts", asJSON, `{"language":"python"}`)
	ask("/filesystem.Filesystem/CreateWatcher", asJSON, `{"path":"/tmp"}`)
	v.context, v.watcher = told.ID, told.WatcherID
	const message = `{"process":{"cmd":"/bin/bash","args":["-c","cat >/dev/null; sleep 3000"]}}`
	v.process = pid.FindStringSubmatch(ask("/process.Process/Start", "application/connect+json", "\x00\x00\x00\x00"+string(rune(len(message)))+message))[1]
	return v
}

// What no client would send is refused each time, in the form that the SDKs read.
func TestNonsense(t *testing.T) {
	tier.Full(t)
	b := frontdoor.Real(t, door)
	mine, theirs := newVictim(t, b, harness.Token, "own"), newVictim(t, b, harness.OtherToken, canary)
	frontdoor.Nonsense{
		Door:        "e2b",
		Credentials: mine.headers(),
		Parameters:  map[string][]string{"id": {mine.sandbox, theirs.sandbox}, "context": {mine.context, theirs.context}},
		Harmful: []string{
			"DELETE /sandboxes/{id}", "POST /sandboxes/{id}/pause", "POST /sandboxes/{id}/resume", "POST /sandboxes/{id}/timeout",
			"DELETE /contexts/{context}",
			"POST /sandboxes/{id}/snapshots", // each of which is the memory of a sandbox
		},
		Endless:   []string{"POST /process.Process/Start", "POST /process.Process/Connect", "POST /filesystem.Filesystem/WatchDir"},
		Enveloped: []string{"POST /process.Process/Start", "POST /process.Process/Connect", "POST /process.Process/StreamInput", "POST /filesystem.Filesystem/WatchDir"},
		Bodies:    bodies(mine, theirs),
		Queries: map[string]string{
			"path": "/tmp/none", "username": "user", "signature": "v1_x", "signature_expiration": "4000000000", "state": "running,paused", "limit": "2",
			"metadata": "owner%3D" + canary, "order": "asc", "startedAfter": "2020-01-01T00:00:00Z", "template": "base", "sandbox_ids": theirs.sandbox, "nextToken": "eA", "start": "1",
		},
		Undo: map[string]string{
			"POST /sandboxes": "DELETE /sandboxes/%s", "POST /v2/sandboxes": "DELETE /sandboxes/%s", "POST /contexts": "DELETE /contexts/%s",
			"POST /sandboxes/{id}/fork":                 "DELETE /sandboxes/%s",
			"POST /filesystem.Filesystem/CreateWatcher": `POST /filesystem.Filesystem/RemoveWatcher {"watcherId":"%s"}`,
		},
		Refusal:  refusalFault,
		Canaries: []string{canary, theirs.sandbox, theirs.access, theirs.traffic},
	}.Send(t, b, 10_000)
	assert.Equal(t, theirs.ask(t, b, http.MethodGet, "/files?path=/tmp/secret", "", ""), canary, "it is as it was")
	assert.Assert(t, strings.Contains(theirs.ask(t, b, http.MethodPost, "/process.Process/List", asJSON, "{}"), theirs.process), "it runs as it did")
	for _, v := range []victim{mine, theirs} {
		v.ask(t, b, http.MethodDelete, "/sandboxes/"+v.sandbox, "", "")
	}
}

// bodies are right ones, of operations whose fields are made wrong.
func bodies(mine, theirs victim) map[string]string {
	const process, files = "POST /process.Process/", "POST /filesystem.Filesystem/"
	return map[string]string{
		"POST /v2/sandboxes":              `{"templateID":"base","timeout":600,"metadata":{"a":"b"},"envVars":{"A":"b"},"secure":true,"allow_internet_access":true,"autoPause":false,"autoResume":{"enabled":false},"network":null}`,
		"PUT /sandboxes/{id}/network":     `{"allowOut":["a.example"],"denyOut":["0.0.0.0/0"],"allow_internet_access":false}`,
		"POST /sandboxes/{id}/fork":       `{"count":1,"timeout":60}`,
		"POST /sandboxes/{id}/timeout":    `{"timeout":3600}`,
		"POST /sandboxes/{id}/refreshes":  `{"duration":60}`,
		"POST /sandboxes/{id}/connect":    `{"timeout":60}`,
		"POST /v2/sandboxes/{id}/connect": `{"timeout":60,"memory":true}`,
		"POST /execute":                   `{"code":"1","context_id":"` + mine.context + `","language":null,"env_vars":{"A":"b"}}`,
		"POST /contexts":                  `{"language":"python","cwd":"/tmp"}`,
		process + "Start":                 `{"process":{"cmd":"/bin/true","args":[],"envs":{"A":"b"},"cwd":"/tmp"},"stdin":false}`,
		process + "Connect":               `{"process":{"pid":` + theirs.process + `}}`,
		process + "SendInput":             `{"process":{"pid":` + theirs.process + `},"input":{"stdin":"aGkK"}}`,
		process + "StreamInput":           `{"start":{"process":{"pid":` + theirs.process + `}}}`,
		process + "SendSignal":            `{"process":{"pid":` + theirs.process + `},"signal":"SIGNAL_SIGKILL"}`,
		process + "CloseStdin":            `{"process":{"pid":` + theirs.process + `}}`,
		process + "Update":                `{"process":{"pid":` + theirs.process + `},"pty":{"size":{"cols":80,"rows":24}}}`,
		files + "Stat":                    `{"path":"/tmp/none"}`,
		files + "ListDir":                 `{"path":"/tmp","depth":2}`,
		files + "MakeDir":                 `{"path":"/tmp/made"}`,
		files + "Move":                    `{"source":"/tmp/none","destination":"/tmp/other"}`,
		files + "Remove":                  `{"path":"/tmp/none"}`,
		files + "WatchDir":                `{"path":"/tmp","recursive":true,"includeEntry":true}`,
		files + "CreateWatcher":           `{"path":"/tmp","recursive":true,"includeEntry":true}`,
		files + "GetWatcherEvents":        `{"watcherId":"` + theirs.watcher + `"}`,
		files + "RemoveWatcher":           `{"watcherId":"` + theirs.watcher + `"}`,
	}
}

// refusalFault says what is wrong with the form of a refusal.
func refusalFault(op string, status int, body []byte) error {
	rpc := strings.HasPrefix(op, "POST /process.Process/") || strings.HasPrefix(op, "POST /filesystem.Filesystem/")
	if rpc && status == http.StatusUnsupportedMediaType && len(body) == 0 {
		return nil // as envd refuses what is neither JSON nor a stream
	}
	var told struct {
		Code      any
		Message   string
		ErrorCode string `json:"error_code"`
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return err
	}
	code, connect := told.Code.(string)
	switch {
	case connect && rpc && code != "" && code != "unknown" && code != "internal" && told.Message != "":
		return nil // of the Connect protocol
	case told.Code != float64(status) || !strings.HasPrefix(told.ErrorCode, "SB0") || told.Message == "" || told.RequestID == "":
		return errors.New("it is not of the form of the door")
	}
	return nil
}
