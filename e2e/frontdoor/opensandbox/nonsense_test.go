package opensandbox_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// canary stands in all that the other tenant has.
const canary = "canary-of-rival"

// victim is a sandbox of the other tenant, with what there is to be found in it.
type victim struct{ sandbox, token, context, command string }

var firstID = regexp.MustCompile(`"(?:id|text)":"([^"]+)"`)

func newVictim(t *testing.T, b *harness.Broker, token, secret string) (v victim) {
	t.Helper()
	v.sandbox, v.token = create(t, b, token, `{"image":{"uri":"python:3.12"},"timeout":3600,"env":{"SECRET":"`+secret+`"},"metadata":{"owner":"`+secret+`"}}`)
	ask := func(method, path, body string) string {
		status, text := do(t, method, b.URL+"/opensandbox/sandboxes/"+v.sandbox+"/proxy/44772"+path, map[string]string{"X-EXECD-ACCESS-TOKEN": v.token}, body)
		assert.Equal(t, status, http.StatusOK, text)
		return text
	}
	ask(http.MethodPost, "/command", `{"command":"echo `+secret+` | tee /tmp/secret /workspace/secret"}`)
	v.command = firstID.FindStringSubmatch(ask(http.MethodPost, "/command", `{"command":"echo $SECRET; exec sleep 3000","background":true}`))[1]
	v.context = firstID.FindStringSubmatch(ask(http.MethodPost, "/code/context", `{"language":"python"}`))[1]
	return v
}

// nonsense sends what no client would, and wants a refusal each time.
func nonsense(t *testing.T, b *harness.Broker) {
	mine, theirs := newVictim(t, b, harness.Token, "own"), newVictim(t, b, harness.OtherToken, canary)
	base, execd := b.URL+"/opensandbox", "/sandboxes/{id}/proxy/44772"
	endContext := "DELETE /sandboxes/" + mine.sandbox + "/proxy/44772/code/contexts/%s"
	frontdoor.Nonsense{
		Door:        "opensandbox",
		Credentials: http.Header{"Open-Sandbox-Api-Key": {harness.Token}},
		Parameters: map[string][]string{
			"id": {mine.sandbox, theirs.sandbox}, "context": {mine.context, theirs.context}, "session": {mine.context, mine.command, theirs.context},
			"command": {mine.command, theirs.command}, "port": {"8000", "44772", "18080"}, "kind": {"events", "logs", "credentials"},
		},
		Harmful: []string{"DELETE /v1/sandboxes/{id}", "POST /v1/sandboxes/{id}/pause", "POST /v1/sandboxes/{id}/resume"},
		Endless: []string{"GET " + execd + "/metrics/watch", "GET /v1" + execd + "/metrics/watch"},
		Bodies:  both(bodies(mine)),
		Queries: map[string]string{
			"path": "/tmp", "pattern": "*", "depth": "2", "offset": "1", "limit": "2", "cursor": "1", "id": theirs.command, "language": "python", "page": "1",
			"pageSize": "2", "metadata": "owner%3D" + canary, "state": "Running", "scope": "all", "use_server_proxy": "true", "verbose": "true",
		},
		Undo: map[string]string{
			"POST /v1/sandboxes":              "DELETE /v1/sandboxes/%s",
			"POST " + execd + "/code/context": endContext, "POST /v1" + execd + "/code/context": endContext,
			"POST " + execd + "/session": endContext, "POST /v1" + execd + "/session": endContext,
		},
		Documented: func(op string, status int) bool { // nothing listens there
			return status == http.StatusBadGateway && strings.Contains(op, "/proxy/{port}")
		},
		Refusal:  refusalFault,
		Canaries: []string{canary, theirs.sandbox, theirs.token},
	}.Send(t, b, 10_000)
	for _, v := range []struct {
		victim
		token, secret string
	}{{mine, harness.Token, "own"}, {theirs, harness.OtherToken, canary}} {
		status, text := do(t, http.MethodGet, base+"/sandboxes/"+v.sandbox+"/proxy/44772/files/download?path=/workspace/secret", key(v.token), "")
		assert.Check(t, status == http.StatusOK && text == v.secret+"\n", "it is as it was: %d %s", status, text)
		status, text = do(t, http.MethodDelete, base+"/v1/sandboxes/"+v.sandbox, key(v.token), "")
		assert.Equal(t, status, http.StatusNoContent, text)
	}
}

// bodies are right ones, of operations whose fields are made wrong.
func bodies(mine victim) map[string]string {
	execd := " /sandboxes/{id}/proxy/44772"
	return map[string]string{
		"POST /v1/sandboxes":                         `{"image":{"uri":"python:3.12","auth":{}},"timeout":600,"entrypoint":["true"],"env":{"A":"b"},"metadata":{"a":"b"},"resourceLimits":{"cpu":"1"},"networkPolicy":{"defaultAction":"deny","egress":[]},"platform":{"os":"linux"},"secureAccess":false,"volumes":[],"extensions":{}}`,
		"PATCH /v1/sandboxes/{id}/metadata":          `{"a":"b"}`,
		"POST /v1/sandboxes/{id}/renew-expiration":   `{"expiresAt":"2099-01-01T00:00:00Z"}`,
		"POST /v1/metrics/events":                    `{"eventType":"sandbox.create","createDurationMs":1,"success":true}`,
		"POST" + execd + "/command":                  `{"command":"true","argv":[],"cwd":"/tmp","background":false,"timeout":10000,"envs":{"A":"b"}}`,
		"POST" + execd + "/code":                     `{"code":"1","context":{"id":"` + mine.context + `","language":"python"}}`,
		"POST" + execd + "/code/context":             `{"language":"python","cwd":"/tmp"}`,
		"POST" + execd + "/session/{session}/run":    `{"command":"true","cwd":"/tmp","timeout":10000}`,
		"POST" + execd + "/pty":                      `{"cwd":"/tmp","command":"true"}`,
		"POST" + execd + "/files/permissions":        `{"/tmp/secret":{"mode":644,"owner":"","group":""}}`,
		"POST" + execd + "/files/mv":                 `[{"src":"/tmp/none","dest":"/tmp/other"}]`,
		"POST" + execd + "/files/replace":            `{"/tmp/secret":{"old":"none","new":"x"}}`,
		"POST" + execd + "/directories":              `{"/tmp/made":{"mode":755}}`,
		"PATCH /sandboxes/{id}/proxy/18080/policy":   `[{"action":"allow","target":"x.org"}]`,
		"PUT /sandboxes/{id}/proxy/18080/extensions": `{"revision":0,"resources":[]}`,
	}
}

// both are bodies at both mounts.
func both(bodies map[string]string) map[string]string {
	all := map[string]string{}
	for op, body := range bodies {
		all[op] = body
		if method, path, _ := strings.Cut(op, " "); strings.HasPrefix(path, "/sandboxes/") {
			all[method+" /v1"+path] = body
		}
	}
	return all
}

// refusalFault says what is wrong with the form of a refusal.
func refusalFault(_ string, _ int, body []byte) error {
	var told struct {
		Code, Message string
		RequestID     string `json:"request_id"`
		ErrorCode     string `json:"error_code"` // where code is OpenSandbox's own word
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return err
	}
	if !strings.HasPrefix(told.Code, "SB0") && !strings.HasPrefix(told.ErrorCode, "SB0") || told.Message == "" || told.RequestID == "" {
		return errors.New("it is not of the form of the door")
	}
	return nil
}
