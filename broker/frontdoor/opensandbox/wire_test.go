package opensandbox_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/frontdoortest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A transcript is a request and its answer as bytes on the wire, beside what is known of
// OpenSandbox. Those of one subject are one golden file.

var (
	times   = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	changes = regexp.MustCompile(`((?:Date|Last-Modified|Etag): ).*`)
	lengths = regexp.MustCompile(`(Content-Length: )\d+`)
	events  = regexp.MustCompile(`("(?:timestamp|execution_time)":)\d+`)
	chunks  = regexp.MustCompile(`(?m)^[0-9a-f]+$\n`)
	ids     = regexp.MustCompile(`\b(?:x-)?[a-z2-7]{20}(?:[a-z2-7]{6,7})?\b`)
	tokens  = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
)

// exchange is a transcript of one request to execd.
func (f *fixture) exchange(method, path, body string, headers ...string) string {
	f.t.Helper()
	return f.wire(method, f.endpoint+path, body, "X-EXECD-ACCESS-TOKEN: "+f.token, headers...)
}

// wire is a transcript of a request below where the door is, without what changes from one
// time to the next.
func (f *fixture) wire(method, path, body, credential string, headers ...string) string {
	f.t.Helper()
	return f.wireUntil(nil, method, path, body, credential, headers...)
}

// wireUntil is wire, and hangs up when enough has come.
func (f *fixture) wireUntil(enough func(got []byte) bool, method, path, body, credential string, headers ...string) string {
	f.t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s /opensandbox%s HTTP/1.1\r\nHost: sandboxes.example\r\n", method, path)
	if credential != "" {
		fmt.Fprintf(&b, "%s\r\n", credential)
	}
	b.WriteString("X-Request-ID: r1\r\n")
	if !slices.ContainsFunc(headers, func(header string) bool { return strings.HasPrefix(header, "Connection: ") }) {
		b.WriteString("Connection: close\r\n")
	}
	for _, header := range headers {
		fmt.Fprintf(&b, "%s\r\n", header)
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	fmt.Fprintf(&b, "\r\n%s", body)
	sent := b.String()
	answer, err := frontdoortest.Exchange(f.address, sent, enough)
	assert.NilError(f.t, err, answer)
	if head, frames, ok := strings.Cut(answer, "\r\n\r\n"); ok && strings.HasPrefix(head, "HTTP/1.1 101 ") {
		answer = fmt.Sprintf("%s\r\n\r\n%q", head, frames) // they are no text
	}
	text := ">>> " + sent + "\n<<< " + answer + "\n\n"
	text = strings.NewReplacer("\r\n", "\n", f.sandbox, "{id}", f.token, "{token}").Replace(text)
	return masked(text)
}

func masked(text string) string {
	text = changes.ReplaceAllString(text, "${1}{changes}")
	text = tokens.ReplaceAllString(ids.ReplaceAllString(text, "{another}"), "{token}")
	if strings.Contains(text, `{"type":`) {
		text = events.ReplaceAllString(text, "${1}{number}")
	}
	if strings.Contains(text, "Transfer-Encoding: chunked") { // sizes change with what is in the chunks
		text = chunks.ReplaceAllString(text, "{size}\n")
	}
	if times.MatchString(text) { // whose length changes with the fractions of a second
		text = lengths.ReplaceAllString(times.ReplaceAllString(text, "{time}"), "${1}{length}")
	}
	return text
}

const asJSON = "Content-Type: application/json"

// withEverything is a provider that can do all that the door has a use for.
func withEverything(t *testing.T, b *box) {
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		secrets := slices.DeleteFunc([]string{"Open-Sandbox-Api-Key", "X-Execd-Access-Token", "Opensandbox-Egress-Auth"}, func(name string) bool { return r.Header.Get(name) == "" })
		_, _ = fmt.Fprintf(w, "%s %s %q %q\n", r.Method, r.URL, body, secrets)
	}))
	t.Cleanup(program.Close)
	b.SameID = ""
	b.Capabilities = append(b.Capabilities, sdk.CapabilityContexts)
	b.Snapshots = &instancetest.Snapshots{Bytes: 10}
	b.OnPause = func(context.Context, string, bool) error { return nil }
	interrupted := make(chan struct{})
	b.OnInterrupt = func(context.Context, string, string) error { close(interrupted); return nil }
	b.OnDialPort = func(ctx context.Context, _ string, port uint16) (net.Conn, error) {
		if port != 8000 {
			return nil, sdk.Errorf(sdk.CodeUnavailable, "nothing listens on port %d", port)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", program.Listener.Addr().String())
	}
	b.OnExecute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		language, known := b.contexts.Language(req.ContextID)
		switch {
		case !known:
			return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
		case strings.HasSuffix(req.Code, "fail\n}"):
			return sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, out.Stderr([]byte("bash: fail: command not found\n"))
		case req.Code == "fail":
			err := out.Stderr([]byte("Traceback (most recent call last):\nNameError: name 'fail' is not defined\n"))
			return sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, err
		case req.Code == "wait":
			select {
			case <-interrupted:
			case <-ctx.Done():
			}
			return sdk.ExecuteResult{Status: sdk.StatusCancelled, ExitCode: 130}, nil
		case language == sdk.Bash:
			err := out.Stdout([]byte("one\n\ntwo"))
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, err
		}
		err := out.Stdout([]byte("printed\n"))
		if err == nil {
			err = out.Artifact(sdk.Artifact{Kind: sdk.ArtifactDisplay, MIMEType: "text/plain", Data: []byte("42"), Size: 2})
		}
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, err
	}
}

const (
	sandboxes = "/v1/sandboxes"
	missing   = "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa"
)

// transcripts compares those of a subject with its golden file.
func transcripts(t *testing.T, subject string, exchanges ...string) {
	t.Helper()
	golden.Assert(t, strings.Join(exchanges, ""), subject+".golden")
}

func TestLifecycleOnTheWire(t *testing.T) {
	f := start(t, func(b *box) { withEverything(t, b) })
	own := sandboxes + "/" + f.sandbox
	key := func(method, path, body string) string {
		if body == "" {
			return f.wire(method, path, body, apiKey)
		}
		return f.wire(method, path, body, apiKey, asJSON)
	}
	transcripts(t, "health", f.wire("GET", "/health", "", ""), f.wire("GET", "/v1/health", "", ""),
		f.wire("POST", "/v1/metrics/events", `{"eventType":"sandbox.create","createDurationMs":12,"success":true}`, "", asJSON))
	transcripts(t, "get", key("GET", own, ""), key("GET", missing, ""), f.wire("GET", own, "", ""),
		f.wire("GET", own, "", "OPEN-SANDBOX-API-KEY: umbrella-token"), f.wire("GET", own, "", "OPEN-SANDBOX-API-KEY: "+f.token))
	const whole = `{"image":{"uri":"python:3.12"},"timeout":600,"resourceLimits":{"cpu":"1","memory":"2Gi"},"entrypoint":["sleep","600"],"env":{"A":"b"},"metadata":{"app":"wire"},"secureAccess":false,"extensions":{}}`
	transcripts(t, "create", key("POST", sandboxes, whole), key("POST", sandboxes, `{"image":{"uri":"unknown:1"}}`),
		key("POST", sandboxes, `{"image":{"uri":"python:3.12"},"volumes":[{"name":"v"}]}`), key("POST", sandboxes, `{"image":`), f.wire("POST", sandboxes, whole, "", asJSON))
	transcripts(t, "list", key("GET", sandboxes+"?metadata=app%3Dwire&page=1&pageSize=1", ""), key("GET", sandboxes+"?state=Paused&state=Failed", ""),
		key("GET", sandboxes+"?page=3", ""), key("GET", sandboxes+"?page=0", ""), key("GET", sandboxes+"?metadata=%25zz", ""))
	transcripts(t, "metadata", key("PATCH", own+"/metadata", `{"app":"changed","gone":null}`), key("PATCH", own+"/metadata", `{}`), key("PATCH", own+"/metadata", `{"app":1}`))
	transcripts(t, "renew", key("POST", own+"/renew-expiration", fmt.Sprintf(`{"expiresAt":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano))),
		key("POST", own+"/renew-expiration", `{"expiresAt":"2020-01-01T00:00:00Z"}`), key("POST", own+"/renew-expiration", `{}`))
	transcripts(t, "endpoints", key("GET", own+"/endpoints/44772", ""), key("GET", own+"/endpoints/18080?use_server_proxy=true", ""), key("GET", own+"/endpoints/8000?use_server_proxy=false", ""),
		key("GET", own+"/endpoints/8000?expires=1900000000", ""), key("GET", own+"/endpoints/0", ""), key("GET", missing+"/endpoints/44772", ""))
	transcripts(t, "diagnostics", key("GET", own+"/diagnostics/events?scope=lifecycle", ""), key("GET", own+"/diagnostics/logs?scope=all", ""), key("GET", own+"/diagnostics/logs?scope=cosmos", ""))
	var never []string
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		for _, path := range []string{"/v1/pools", "/v1/pools/p1", "/v1/templates", "/v1/templates/t1"} {
			never = append(never, key(method, path, ""))
		}
	}
	transcripts(t, "never", never...)
	made := snapshotID.FindStringSubmatch(f.do(http.MethodPost, own+"/snapshots", `{"name":"first"}`, apiKey).wants(http.StatusAccepted).text)[1]
	goesOn := fmt.Sprintf(`{"snapshotId":%q,"entrypoint":["tail","-f","/dev/null"],"timeout":600,"metadata":{"a":"b"}}`, made)
	transcripts(t, "snapshots",
		key("POST", own+"/snapshots", ""), key("POST", own+"/snapshots", `{"name":""}`), key("POST", own+"/snapshots", `{"memory":true}`), key("POST", missing+"/snapshots", `{}`),
		key("GET", "/v1/snapshots?sandboxId="+f.sandbox+"&state=Ready&name=first&page=1&pageSize=1", ""), key("GET", "/v1/snapshots?state=Creating&state=Failed", ""), key("GET", "/v1/snapshots?pageSize=0", ""),
		key("GET", "/v1/snapshots/"+made, ""), key("GET", "/v1/snapshots/nonsense", ""), f.wire("GET", "/v1/snapshots/"+made, "", "OPEN-SANDBOX-API-KEY: umbrella-token"),
		key("POST", sandboxes, goesOn), key("POST", sandboxes, `{"snapshotId":"nonsense"}`), key("POST", sandboxes, `{"snapshotId":"s","image":{"uri":"python:3.12"}}`),
		key("DELETE", "/v1/snapshots/"+made, ""), key("DELETE", "/v1/snapshots/"+made, ""))
	transcripts(t, "mounts", key("GET", "/v1"+f.endpoint+"/ping", ""), f.exchange("GET", "/ping", ""), f.exchange("GET", "/nowhere", ""), key("GET", "/v1/nowhere", ""))
	transcripts(t, "pause", key("POST", own+"/pause", ""), key("POST", own+"/pause", ""), f.exchange("GET", "/ping", ""), key("POST", own+"/resume", ""), key("POST", own+"/resume", ""))
	transcripts(t, "ping", f.exchange("GET", "/ping", ""), f.wire("GET", f.endpoint+"/ping", "", ""), f.wire("GET", f.endpoint+"/ping", "", "X-EXECD-ACCESS-TOKEN: nonsense"))
	transcripts(t, "destroy", key("DELETE", own, ""), key("DELETE", own, ""), f.exchange("GET", "/ping", ""))
}

// snapshotID is that of an answer.
var snapshotID = regexp.MustCompile(`"id":"([^"]+)"`)

// commandID is that in the first event of a stream.
var commandID = regexp.MustCompile(`"init","text":"([^"]+)"`)

func TestCommandsOnTheWire(t *testing.T) {
	f := start(t)
	post := func(path, body string) string { return f.exchange("POST", path, body, asJSON) }
	transcripts(t, "command", post("/command", `{"command":"echo Hello; echo; printf 'grüße\r\nend'"}`), post("/command", `{"command":"echo no >&2; exit 3"}`),
		post("/command", `{"argv":["printf","%s\n","a b"],"cwd":"/workspace","envs":{"A":"b"},"timeout":60000}`), post("/command", `{"argv":["no-such-program"]}`),
		post("/command", `{"command":"ls","argv":["ls"]}`), post("/command", `{"command":"ls","uid":0}`), post("/command", `{"command":"ls","cwd":"/nowhere"}`), post("/command", `{"command":7}`))
	begun := f.execd(http.MethodPost, "/command", `{"command":"echo one; echo two >&2; exit 4","background":true}`).wants(http.StatusOK)
	id := commandID.FindStringSubmatch(begun.text)[1]
	f.execd(http.MethodGet, "/command/"+id+"/logs", "") // is there from the start
	for ended := false; !ended; {
		var state struct{ Running bool }
		f.execd(http.MethodGet, "/command/status/"+id, "").wants(http.StatusOK).decode(&state)
		ended = !state.Running
	}
	transcripts(t, "command_background", post("/command", `{"command":"true","background":true}`), f.exchange("GET", "/command/status/"+id, ""), f.exchange("GET", "/command/"+id+"/logs", ""),
		f.exchange("GET", "/command/"+id+"/logs?cursor=4", ""), f.exchange("GET", "/command/"+id+"/logs?cursor=8", ""), f.exchange("GET", "/command/"+id+"/logs?cursor=x", ""),
		f.exchange("GET", "/command/status/nonsense", ""), f.exchange("GET", "/command/nonsense/logs", ""))
	id = commandID.FindStringSubmatch(f.execd(http.MethodPost, "/command", `{"command":"exec sleep 600","background":true}`).wants(http.StatusOK).text)[1]
	transcripts(t, "command_interrupt", f.exchange("GET", "/command/status/"+id, ""), f.exchange("DELETE", "/command?id="+id, ""), f.exchange("DELETE", "/command?id=nonsense", ""), f.exchange("DELETE", "/command", ""))
}

func TestTerminalsOnTheWire(t *testing.T) {
	f := start(t)
	id := f.terminal(`{"command":"echo hi"}`)
	for f.terminalStatus(id).Running {
	}
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
	closed := func(got []byte) bool { return bytes.Contains(got, []byte("\x88")) } // the frame that ends it
	attach := f.wireUntil(closed, "GET", f.endpoint+"/pty/"+id+"/ws", "", "X-EXECD-ACCESS-TOKEN: "+f.token, upgrade...)
	transcripts(t, "pty", f.exchange("POST", "/pty", `{"cwd":"/workspace","command":"true"}`, asJSON), f.exchange("POST", "/pty", `{"cwd":"/nowhere"}`, asJSON), f.exchange("GET", "/pty/"+id, ""), attach,
		f.exchange("GET", "/pty/"+id+"/ws?pty=0", ""), f.exchange("GET", "/pty/nonsense/ws", ""), f.exchange("DELETE", "/pty/"+id, ""), f.exchange("DELETE", "/pty/nonsense", ""))
}

func TestCodeOnTheWire(t *testing.T) {
	f := start(t, func(b *box) { withEverything(t, b) })
	post := func(path, body string) string { return f.exchange("POST", path, body, asJSON) }
	transcripts(t, "code_contexts", post("/code/context", `{"language":"python"}`), post("/code/context", `{"language":"java"}`), f.exchange("GET", "/code/contexts", ""), f.exchange("GET", "/code/contexts?language=bash", ""),
		f.exchange("GET", "/code/contexts/context-1", ""), f.exchange("GET", "/code/contexts/nonsense", ""))
	transcripts(t, "code", post("/code", `{"code":"40 + 2","context":{"id":"context-1","language":"python"}}`), post("/code", `{"code":"fail","context":{"language":"python"}}`), post("/code", `{"code":"echo a shell"}`),
		post("/code", `{"code":"1","context":{"language":"go"}}`), post("/code", `{"code":"1","context":{"id":"nonsense","language":"python"}}`), post("/code", `{"context":{"language":"python"}}`))

	req := f.request(t.Context(), http.MethodPost, f.endpoint+"/code", strings.NewReader(`{"code":"wait","context":{"id":"context-1"}}`), "X-EXECD-ACCESS-TOKEN: "+f.token)
	resp, err := f.client.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, resp.StatusCode, http.StatusOK) // its first event has come, so that it runs
	busy, interrupt := post("/code", `{"code":"1","context":{"id":"context-1"}}`), f.exchange("DELETE", "/code?id=context-1", "")
	last, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(string(last), `"ename":"KeyboardInterrupt"`), string(last))
	transcripts(t, "code_interrupt", busy, interrupt, f.exchange("DELETE", "/code?id=context-1", ""), f.exchange("DELETE", "/code?id=nonsense", ""), f.exchange("DELETE", "/code", ""))
	transcripts(t, "code_contexts_delete", f.exchange("DELETE", "/code/contexts/context-1", ""), f.exchange("DELETE", "/code/contexts/context-1", ""), f.exchange("DELETE", "/code/contexts?language=python", ""), f.exchange("DELETE", "/code/contexts", ""))
	id := regexp.MustCompile(`"session_id":"([^"]+)"`).FindStringSubmatch(f.execd(http.MethodPost, "/session", "").wants(http.StatusOK).text)[1]
	transcripts(t, "session", post("/session", `{"cwd":"/tmp"}`), post("/session/"+id+"/run", `{"command":"echo one"}`), post("/session/"+id+"/run", `{"command":"fail","cwd":"/tmp","timeout":1000}`), post("/session/"+id+"/run", `{"command":""}`),
		post("/session/nonsense/run", `{"command":"ls"}`), f.exchange("DELETE", "/session/"+id, ""), f.exchange("DELETE", "/session/"+id, ""))
}

func TestWhatAProviderHasNotOnTheWire(t *testing.T) {
	f := start(t)
	transcripts(t, "not_supported", f.exchange("POST", "/code/context", `{"language":"python"}`, asJSON), f.exchange("POST", "/session", "", asJSON),
		f.wire("POST", sandboxes+"/"+f.sandbox+"/pause", "", apiKey), f.wire("GET", "/sandboxes/"+f.sandbox+"/proxy/8000/", "", apiKey))
}

func TestOtherPortsOnTheWire(t *testing.T) {
	f := start(t, func(b *box) { withEverything(t, b) })
	auth := "OPENSANDBOX-EGRESS-AUTH: " + f.token
	egress := func(method, path, body string) string {
		return f.wire(method, "/sandboxes/"+f.sandbox+"/proxy/18080"+path, body, auth)
	}
	transcripts(t, "egress", egress("GET", "/healthz", ""), egress("GET", "/policy", ""), egress("GET", "/capabilities", ""), egress("GET", "/extensions", ""), egress("PUT", "/extensions", `{"revision":0,"resources":[]}`),
		egress("POST", "/policy", "{}"), egress("PUT", "/policy", "{}"), egress("PATCH", "/policy", `[{"action":"allow","target":"x.org"}]`), egress("PATCH", "/policy", `{}`), egress("DELETE", "/policy", `["x.org"]`), egress("DELETE", "/policy", `[]`))
	var vault []string
	for _, method := range []string{"GET", "POST", "PATCH", "DELETE"} {
		for _, path := range []string{"", "/credentials", "/credentials/c1"} {
			vault = append(vault, egress(method, "/credential-vault"+path, ""))
		}
	}
	transcripts(t, "vault", vault...)
	var isolated, ports []string
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		isolated = append(isolated, f.exchange(method, "/v1/isolated", ""), f.exchange(method, "/v1/isolated/session/s1/run", ""))
		for _, path := range []string{"", "/deep/er?a=1&a=2"} {
			body := ""
			if method != "GET" && method != "OPTIONS" {
				body = "sent"
			}
			ports = append(ports, f.wire(method, "/sandboxes/"+f.sandbox+"/proxy/8000"+path, body, apiKey, "Authorization: Bearer the-program's-own"))
		}
	}
	transcripts(t, "isolated_methods", isolated...)
	ports = append(ports, f.wire("GET", "/sandboxes/"+f.sandbox+"/proxy/8001/", "", apiKey), f.wire("GET", "/sandboxes/"+f.sandbox+"/proxy/70000/", "", apiKey), f.wire("GET", "/sandboxes/"+f.sandbox+"/proxy/8000/", "", ""))
	transcripts(t, "ports", ports...)
	var below []string
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		below = append(below, f.exchange(method, "/proxy/8000", ""), f.exchange(method, "/proxy/8000/deep/er?a=1", ""))
	}
	transcripts(t, "ports_of_execd", below...)
	transcripts(t, "metrics_watch", f.wireUntil(func(got []byte) bool {
		return bytes.Count(got, []byte("timestamp")) == 1 && bytes.HasSuffix(got, []byte("\n\r\n"))
	}, "GET", f.endpoint+"/metrics/watch", "", "X-EXECD-ACCESS-TOKEN: "+f.token))
}

// A route that is new needs a golden file with a request, and nothing here.
func TestEachRouteHasATranscript(t *testing.T) {
	const second = "/v1/sandboxes/{id}/proxy/"
	var operations []rest.Operation
	mounted := map[string]int{}
	for _, op := range start(t).server.Operations("opensandbox") {
		if path, again := strings.CutPrefix(op.Path, second); again {
			mounted[op.Method+" /sandboxes/{id}/proxy/"+path]--
			continue
		}
		operations = append(operations, op)
		if strings.HasPrefix(op.Path, "/sandboxes/") {
			mounted[op.Method+" "+op.Path]++
		}
	}
	for name, n := range mounted {
		assert.Check(t, n == 0, "%s is not the same at both mounts", name)
	}
	missing, err := frontdoortest.Untranscribed(operations, "/opensandbox")
	assert.NilError(t, err)
	assert.Equal(t, strings.Join(missing, "\n"), "")
	assert.Assert(t, len(mounted) > 50 && len(operations) > len(mounted))
}
