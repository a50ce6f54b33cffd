package e2b_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/frontdoortest"
)

// A transcript is a request and its answer as bytes on the wire, beside what is known of
// E2B. Those of one subject are one golden file. Messages of the Connect protocol are shown
// a line each, with the flags of their envelope.

var (
	times   = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|\+00:00)`)
	changes = regexp.MustCompile(`((?:Date|Last-Modified|Etag): ).*`)
	lengths = regexp.MustCompile(`(Content-Length: )\d+`)
	ids     = regexp.MustCompile(`\b(?:x-)?[a-z2-7]{20}(?:[a-z2-7]{6,7})?\b`)
	pids    = regexp.MustCompile(`("pid":)\d+`)
	tokens  = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	pages   = regexp.MustCompile(`(?i)(nextToken=|X-Next-Token: )[0-9A-Za-z_-]+`)
	watcher = regexp.MustCompile(`("watcherId":")[A-Z2-7]{26}`)
)

// sandboxed is a transcript of what the sandbox itself is asked.
func (f *fixture) sandboxed(method, path, body string, headers ...string) string {
	f.t.Helper()
	return f.wire(nil, method, path, body, slices.Concat(f.data(), headers)...)
}

// rpc is a transcript of a call of the Connect protocol with one answer.
func (f *fixture) rpc(path, body string, headers ...string) string {
	f.t.Helper()
	return f.sandboxed("POST", path, body, append(headers, asJSON)...)
}

// streamed is a transcript of a call of the Connect protocol with a stream.
func (f *fixture) streamed(path, message string, headers ...string) string {
	f.t.Helper()
	return f.sandboxed("POST", path, envelope(0, message), append(headers, "Content-Type: application/connect+json")...)
}

// controlled is a transcript of what the API about sandboxes is asked.
func (f *fixture) controlled(method, path, body string) string {
	f.t.Helper()
	return f.wire(nil, method, path, body, apiKey, asJSON)
}

// wire is a transcript of a request below where the door is, without what changes from one
// time to the next. It hangs up when enough has come; that may be nil.
func (f *fixture) wire(enough func(got []byte) bool, method, path, body string, headers ...string) string {
	f.t.Helper()
	head := fmt.Sprintf("%s /e2b%s HTTP/1.1\r\nHost: sandboxes.example\r\nX-Request-ID: r1\r\nConnection: close\r\n", method, path)
	for _, header := range headers {
		if body != "" || !strings.HasPrefix(header, "Content-Type: ") {
			head += header + "\r\n"
		}
	}
	if body != "" {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	head += "\r\n"
	answer, err := frontdoortest.Exchange(f.address, head+body, enough)
	assert.NilError(f.t, err, answer)
	text := ">>> " + head + shown(f.t, head, body) + "\n<<< "
	answerHead, rest, _ := strings.Cut(answer, "\r\n\r\n")
	lines := strings.Split(answerHead, "\r\n")
	slices.Sort(lines[1:]) // some come in any order
	text += strings.Join(lines, "\n") + "\n\n" + shown(f.t, answerHead, rest) + "\n\n"
	text = strings.NewReplacer("\r\n", "\n", "\u00a0", " ", f.sandbox.SandboxID, "{id}", f.sandbox.EnvdAccessToken, "{token}", f.sandbox.TrafficAccessToken, "{traffic}").Replace(text)
	return masked(text)
}

// shown is a body as a transcript has it.
func shown(t testing.TB, head, body string) string {
	t.Helper()
	if strings.Contains(head, "Transfer-Encoding: chunked") {
		// One that breaks off, because the client has left, is shown as far as it came.
		whole, err := io.ReadAll(httputil.NewChunkedReader(strings.NewReader(body)))
		if err != nil {
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		body = string(whole)
	}
	switch {
	case strings.Contains(head, "application/connect+"):
		var lines []string
		for len(body) >= 5 {
			length := int(binary.BigEndian.Uint32([]byte(body[1:])))
			assert.Assert(t, len(body) >= 5+length, "%q", body)
			lines = append(lines, fmt.Sprintf("[%d] %s", body[0], body[5:5+length]))
			body = body[5+length:]
		}
		if body != "" { // which is no message
			lines = append(lines, strconv.Quote(body))
		}
		return strings.Join(lines, "\n")
	case strings.Contains(head, "Content-Encoding: gzip") && body != "":
		return "{bytes}"
	}
	return body
}

func masked(text string) string {
	text = changes.ReplaceAllString(text, "${1}{changes}")
	text = tokens.ReplaceAllString(ids.ReplaceAllString(text, "{another}"), "{secret}")
	text = pages.ReplaceAllString(watcher.ReplaceAllString(text, "${1}{watcher}"), "${1}{page}")
	if times.MatchString(text) || pids.MatchString(text) || strings.Contains(text, "proto: ") { // whose length changes
		text = lengths.ReplaceAllString(pids.ReplaceAllString(times.ReplaceAllString(text, "{time}"), "${1}{pid}"), "${1}{length}")
	}
	return text
}

// transcripts compares those of a subject with its golden file.
func transcripts(t *testing.T, subject string, exchanges ...string) {
	t.Helper()
	golden.Assert(t, strings.Join(exchanges, ""), subject+".golden")
}

const missing = "/sandboxes/aaaaaaaaaaaaaaaaaaaa"

func TestSandboxesOnTheWire(t *testing.T) {
	f := start(t)
	own := "/sandboxes/" + f.sandbox.SandboxID
	transcripts(t, "health", f.wire(nil, "GET", "/health", ""), f.sandboxed("GET", "/health", ""), f.wire(nil, "GET", "/health", "", "E2b-Sandbox-Id: aaaaaaaaaaaaaaaaaaaa"))
	transcripts(t, "get", f.controlled("GET", own, ""), f.controlled("GET", own+"-6532622b", ""), f.controlled("GET", missing, ""), f.wire(nil, "GET", own, ""), f.wire(nil, "GET", own, "", another))
	transcripts(t, "create", f.controlled("POST", "/v2/sandboxes", `{"templateID":"code-interpreter-v1","metadata":{"a/b":"c"},"envVars":{"A":"b"},"timeout":62}`),
		f.controlled("POST", "/sandboxes", `{"templateID":"base","secure":true,"allow_internet_access":true}`),
		f.controlled("POST", "/v2/sandboxes", `{"templateID":"nonsense"}`), f.controlled("POST", "/v2/sandboxes", `{"templateID":"base","timeout":0}`),
		f.controlled("POST", "/v2/sandboxes", `{"templateID":"base","network":{"denyOut":["1.2.3.4"]}}`), f.controlled("POST", "/v2/sandboxes", `{"templateID":`),
		f.wire(nil, "POST", "/v2/sandboxes", `{"templateID":"base"}`, asJSON))
	transcripts(t, "list", f.controlled("GET", "/sandboxes", ""), f.controlled("GET", "/v2/sandboxes?state=running,paused&limit=1", ""), f.controlled("GET", "/v2/sandboxes?metadata=a%25252Fb%3Dc", ""),
		f.controlled("GET", "/v2/sandboxes?state=paused", ""), f.controlled("GET", "/v2/sandboxes?limit=101", ""), f.controlled("GET", "/v2/sandboxes?nextToken=nonsense", ""))
	transcripts(t, "timeout", f.controlled("POST", own+"/timeout", `{"timeout":900}`), f.controlled("POST", own+"/timeout", `{"timeout":-1}`), f.controlled("POST", own+"/timeout", ""), f.controlled("POST", missing+"/timeout", `{"timeout":900}`),
		f.controlled("POST", own+"/refreshes", `{"duration":1200}`), f.controlled("POST", own+"/refreshes", `{"duration":3601}`))
	transcripts(t, "metrics", f.controlled("GET", own+"/metrics?start=1&end=2", ""), f.controlled("GET", "/sandboxes/metrics?sandbox_ids="+f.sandbox.SandboxID+",aaaaaaaaaaaaaaaaaaaa", ""), f.controlled("GET", "/sandboxes/metrics", ""),
		f.sandboxed("GET", "/metrics", ""), f.wire(nil, "GET", "/metrics", "", "E2b-Sandbox-Id: "+f.sandbox.SandboxID))
	transcripts(t, "envs", f.sandboxed("GET", "/envs", ""), f.wire(nil, "GET", "/envs", ""))
	transcripts(t, "pause", f.controlled("POST", own+"/pause", `{"memory":false}`), f.controlled("POST", own+"/pause", "{}"), f.controlled("POST", own+"/pause", "{}"), f.sandboxed("GET", "/health", ""),
		f.rpc("/filesystem.Filesystem/Stat", `{"path":"/tmp"}`), f.controlled("POST", own+"/resume", `{"timeout":100}`), f.controlled("POST", own+"/resume", ""))
	transcripts(t, "connect", f.controlled("POST", "/v2"+own+"/connect", "{}"), f.controlled("POST", own+"/connect", `{"timeout":60}`), f.controlled("POST", own+"/pause", ""), f.controlled("POST", "/v2"+own+"/connect", `{"timeout":60}`), f.controlled("POST", "/v2"+missing+"/connect", "{}"))
	transcripts(t, "kill", f.controlled("DELETE", own, ""), f.controlled("DELETE", own, ""), f.sandboxed("GET", "/health", ""), f.rpc("/process.Process/List", "{}"), f.sandboxed("POST", "/execute", `{"code":"1"}`, asJSON))
}

func TestWhatNoProviderHasOnTheWire(t *testing.T) {
	f := start(t)
	own := "/sandboxes/" + f.sandbox.SandboxID
	var never []string
	for _, request := range strings.Split(strings.TrimSpace(`
GET `+own+`/logs
GET /v2`+own+`/logs
GET /templates
POST /templates
POST /v2/templates
POST /v3/templates
GET /templates/aliases/base
POST /templates/t1
DELETE /templates/tags
POST /v2/templates/t1/builds/b1
GET /volumes
POST /volumes
GET /volumes/v1
DELETE /volumes/v1
GET /volumecontent/v1/file
PUT /volumecontent/v1/file
POST /volumecontent/v1/dir
DELETE /volumecontent/v1/file
GET /secrets
POST /secrets
DELETE /secrets/s1`), "\n") {
		method, path, _ := strings.Cut(request, " ")
		body := "{}"
		if method == "GET" || method == "DELETE" {
			body = ""
		}
		never = append(never, f.controlled(method, path, body))
	}
	transcripts(t, "never", append(never, f.controlled("GET", "/nowhere", ""), f.controlled("PATCH", own, "{}"))...)
}

func TestSnapshotsOnTheWire(t *testing.T) {
	f := start(t)
	own, missing := "/sandboxes/"+f.sandbox.SandboxID, "/sandboxes/aaaaaaaaaaaaaaaaaaaa"
	made := f.controlled("POST", own+"/snapshots", "{}")
	first := f.keep().SnapshotID
	copied := `{"templateID":"` + first + `"}`
	transcripts(t, "fork", f.controlled("POST", own+"/fork", `{"count":2,"timeout":60}`), f.controlled("POST", own+"/fork", ""), f.controlled("POST", own+"/fork", `{"count":65}`), f.controlled("POST", own+"/fork", `{"timeout":0}`),
		f.controlled("POST", own+"/fork", `{"count":"2"}`), f.controlled("POST", own+"/fork", `{"other":1}`), f.controlled("POST", missing+"/fork", "{}"))
	transcripts(t, "snapshots", made, f.controlled("POST", own+"/snapshots", `{"name":"mine"}`), f.controlled("POST", own+"/snapshots", `{"other":1}`), f.controlled("POST", own+"/snapshots", `[]`), f.controlled("POST", missing+"/snapshots", ""),
		f.controlled("GET", "/snapshots", ""), f.controlled("GET", "/snapshots?limit=1", ""), f.controlled("GET", "/snapshots?sandboxID=aaaaaaaaaaaaaaaaaaaa", ""), f.controlled("GET", "/snapshots?limit=0", ""), f.controlled("GET", "/snapshots?nextToken=nonsense", ""),
		f.controlled("POST", "/v2/sandboxes", copied), f.controlled("POST", "/v2/sandboxes", `{"templateID":"snap-aaaaaaaaaaaaaaaaaaaa"}`),
		f.controlled("DELETE", "/templates/"+first, ""), f.controlled("DELETE", "/templates/"+first, ""), f.controlled("DELETE", "/templates/base", ""), f.controlled("DELETE", "/templates/team%2Fname%3Adefault", ""))
}

func TestNetworksOnTheWire(t *testing.T) {
	f := start(t)
	own, missing := "/sandboxes/"+f.sandbox.SandboxID, "/sandboxes/aaaaaaaaaaaaaaaaaaaa"
	put := func(body string) string { return f.controlled("PUT", own+"/network", body) }
	transcripts(t, "network", put(`{"allowOut":["api.example.com"],"denyOut":["0.0.0.0/0"]}`), f.controlled("GET", own, ""), put(`{"allow_internet_access":false}`), f.controlled("GET", own, ""), put("{}"), f.controlled("GET", own, ""),
		put(`{"denyOut":["192.0.2.1"]}`), put(`{"allowOut":["api.example.com"]}`), put(`{"allowOut":["192.0.2.0/24"],"denyOut":["0.0.0.0/0"]}`), put(`{"allowOut":["evil.example"],"denyOut":["0.0.0.0/0"]}`),
		put(`{"rules":{"api.example.com":[{}]}}`), put(`{"egressProxy":{"address":"a:1"}}`), put(`{"allow_internet_access":"no"}`), put(`[]`), f.controlled("PUT", missing+"/network", "{}"),
		f.controlled("POST", "/v2/sandboxes", `{"templateID":"base","network":{"allowOut":["evil.example"],"denyOut":["0.0.0.0/0"]}}`))
}

// pid is that of the first event of a stream.
func pid(t testing.TB, message string) string {
	t.Helper()
	found := regexp.MustCompile(`^{"event":{"start":{"pid":(\d+)}}}$`).FindStringSubmatch(message)
	assert.Assert(t, found != nil, message)
	return found[1]
}

// begin starts a process that reads its input, and leaves it.
func (f *fixture) begin(more string) (process string) {
	f.t.Helper()
	resp, err := f.client.Do(f.request(f.t.Context(), "POST", "/process.Process/Start", envelope(0, `{"process":{"cmd":"/bin/cat"}`+more+`}`), append(f.data(), "Content-Type: application/connect+json")...))
	assert.NilError(f.t, err)
	defer resp.Body.Close()
	head := make([]byte, 5)
	_, err = io.ReadFull(resp.Body, head)
	assert.NilError(f.t, err)
	first := make([]byte, head[4])
	_, err = io.ReadFull(resp.Body, first)
	assert.NilError(f.t, err)
	return pid(f.t, string(first))
}

func TestProcessesOnTheWire(t *testing.T) {
	f := start(t)
	const route = "/process.Process/"
	sh := func(command string) string {
		return `{"process":{"cmd":"/bin/sh","args":["-c",` + strconv.Quote(command) + `]},"stdin":false}`
	}
	transcripts(t, "process_start", f.streamed(route+"Start", sh("printf hi")), f.streamed(route+"Start", sh("printf no >&2; exit 3"), "Keepalive-Ping-Interval: 50"), f.streamed(route+"Start", sh("kill -9 $$")),
		f.streamed(route+"Start", sh("exec sleep 600"), "Connect-Timeout-Ms: 200"), f.streamed(route+"Start", `{"process":{"cmd":"no-such-program"}}`),
		f.streamed(route+"Start", `{"process":{"cmd":"/bin/pwd","cwd":"/nowhere"}}`), f.streamed(route+"Start", `{"process":{"cmd":"/bin/pwd"},"tag":"t"}`), f.streamed(route+"Start", `{"process":{"cmd":"/bin/pwd"},"unknown":1}`),
		f.streamed(route+"Start", sh("true"), "Authorization: Basic cm9vdDo="), f.streamed(route+"Start", sh("true"), "Connect-Timeout-Ms: soon"),
		f.wire(nil, "POST", route+"Start", envelope(0, sh("true")), "Content-Type: application/connect+json", "E2b-Sandbox-Id: "+f.sandbox.SandboxID))
	process := f.begin("")
	of := func(more string) string { return `{"process":{"pid":` + process + `}` + more + `}` }
	transcripts(t, "process_input", f.rpc(route+"List", "{}"), f.rpc(route+"SendInput", of(`,"input":{"stdin":""}`)), f.rpc(route+"SendInput", of(`,"input":{"pty":"aGkK"}`)), f.rpc(route+"SendInput", of("")),
		f.rpc(route+"SendInput", `{"process":{"pid":1},"input":{"stdin":"aGkK"}}`), f.rpc(route+"SendInput", `{"process":{"tag":"t"},"input":{"stdin":"aGkK"}}`),
		f.sandboxed("POST", route+"StreamInput", envelope(0, `{"start":{"process":{"pid":`+process+`}}}`)+envelope(0, `{"data":{"input":{"stdin":""}}}`)+envelope(0, `{"keepalive":{}}`), "Content-Type: application/connect+json"),
		f.streamed(route+"StreamInput", `{"keepalive":{}}`), f.rpc(route+"Update", of(`,"pty":{"size":{"cols":80,"rows":24}}`)), f.rpc(route+"CloseStdin", of("")))
	transcripts(t, "process_connect", f.streamed(route+"Connect", of("")), f.streamed(route+"Connect", `{"process":{"pid":1}}`), f.rpc(route+"List", "{}"))
	process = f.begin("")
	transcripts(t, "process_signal", f.rpc(route+"SendSignal", of(`,"signal":"SIGNAL_UNSPECIFIED"`)), f.rpc(route+"SendSignal", of(`,"signal":"SIGNAL_SIGKILL"`)), f.streamed(route+"Connect", of("")), f.rpc(route+"SendSignal", of(`,"signal":"SIGNAL_SIGTERM"`)), f.rpc(route+"CloseStdin", of("")))
	process = f.begin(`,"pty":{"size":{"cols":80,"rows":24}}`)
	transcripts(t, "process_terminal", f.rpc(route+"Update", of(`,"pty":{"size":{"cols":100,"rows":30}}`)), f.rpc(route+"Update", of(`,"pty":{"size":{"cols":0,"rows":30}}`)), f.rpc(route+"SendInput", of(`,"input":{"stdin":"aGkK"}`)), f.rpc(route+"CloseStdin", of("")),
		f.streamed(route+"Start", `{"process":{"cmd":"/bin/sh","args":["-c","stty size"]},"pty":{"size":{"cols":80,"rows":24}}}`))
	transcripts(t, "protocol", f.sandboxed("GET", route+"List", ""), f.sandboxed("POST", route+"List", "{}", "Content-Type: text/plain"), f.rpc(route+"List", "{"), f.streamed(route+"Start", "{"),
		f.rpc(route+"Nothing", "{}"), f.sandboxed("POST", route+"Start", "\x00", "Content-Type: application/connect+json"))
}

func TestFilesystemOnTheWire(t *testing.T) {
	f := start(t)
	const route = "/filesystem.Filesystem/"
	f.write("home/user/empty", "")
	f.write("home/user/sub/file", "12345")
	transcripts(t, "stat", f.rpc(route+"Stat", `{"path":"empty"}`), f.rpc(route+"Stat", `{"path":"~/sub/file"}`), f.rpc(route+"Stat", `{"path":"/home/user/sub"}`), f.rpc(route+"Stat", `{"path":"nowhere"}`), f.rpc(route+"Stat", `{"path":"~other"}`), f.rpc(route+"Stat", `{"path":"empty"}`, "Authorization: Basic cm9vdDo="))
	transcripts(t, "list_directory", f.rpc(route+"ListDir", `{"path":"","depth":2}`), f.rpc(route+"ListDir", `{"path":"sub"}`), f.rpc(route+"ListDir", `{"path":"empty"}`), f.rpc(route+"ListDir", `{"path":"nowhere"}`))
	transcripts(t, "make_directory", f.rpc(route+"MakeDir", `{"path":"a/b"}`), f.rpc(route+"MakeDir", `{"path":"a/b"}`), f.rpc(route+"MakeDir", `{"path":"empty"}`), f.rpc(route+"ListDir", `{"path":"a/b"}`))
	transcripts(t, "move", f.rpc(route+"Move", `{"source":"sub/file","destination":"a/c/moved"}`), f.rpc(route+"Move", `{"source":"sub/file","destination":"x"}`))
	transcripts(t, "remove", f.rpc(route+"Remove", `{"path":"a"}`), f.rpc(route+"Remove", `{"path":"a"}`))
	var told struct{ WatcherID string }
	f.ask("POST", route+"CreateWatcher", `{"path":"sub"}`).wants(200).decode(&told)
	of := `{"watcherId":"` + told.WatcherID + `"}`
	made := f.rpc(route+"CreateWatcher", `{"path":"."}`)
	began := func(got []byte) bool {
		return bytes.Contains(got, []byte(`{"start":{}}`)) && bytes.HasSuffix(got, []byte("\r\n"))
	}
	transcripts(t, "watch", f.wire(began, "POST", route+"WatchDir", envelope(0, `{"path":"sub"}`), append(f.data(), "Content-Type: application/connect+json")...), f.streamed(route+"WatchDir", `{"path":"nowhere"}`),
		made, f.rpc(route+"CreateWatcher", `{"path":"nowhere"}`), f.rpc(route+"GetWatcherEvents", of), f.rpc(route+"RemoveWatcher", of), f.rpc(route+"RemoveWatcher", of), f.rpc(route+"GetWatcherEvents", of))
	var left struct{ WatcherID string }
	assert.NilError(t, json.Unmarshal([]byte(f.ask("POST", route+"CreateWatcher", `{"path":"sub"}`).wants(200).text), &left))
	f.ask("POST", route+"RemoveWatcher", `{"watcherId":"`+left.WatcherID+`"}`).wants(200)
}

// signature is what the SDKs sign an address of no user with.
func signature(token, path, operation, until string) string {
	text := path + ":" + operation + "::" + token
	if until != "" {
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// form is a body of multipart/form-data with one file after the other: name, content.
func form(parts ...string) string {
	var b strings.Builder
	for n := 0; n < len(parts); n += 2 {
		fmt.Fprintf(&b, "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=%q\r\nContent-Type: application/octet-stream\r\n\r\n%s\r\n", parts[n], parts[n+1])
	}
	return b.String() + "--b--\r\n"
}

const asForm = "Content-Type: multipart/form-data; boundary=b"

func TestFilesOnTheWire(t *testing.T) {
	f := start(t)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte("packed"))
	assert.NilError(t, err)
	assert.NilError(t, w.Close())
	const compressed = "Content-Encoding: gzip"
	transcripts(t, "files_write", f.sandboxed("POST", "/files?path=one.txt", form("one.txt", "1"), asForm), f.sandboxed("POST", "/files", form("a/two.txt", "2", "/tmp/three.txt", "3"), asForm),
		f.sandboxed("POST", "/files?path=raw&username=user", "raw", asBytes), f.sandboxed("POST", "/files?path=packed", packed.String(), asBytes, compressed),
		f.sandboxed("POST", "/files?path=x", form("x", "1", "y", "2"), asForm), f.sandboxed("POST", "/files", "raw", asBytes), f.sandboxed("POST", "/files?path=x", "{}", asJSON), f.sandboxed("POST", "/files?path=x", "x", asBytes, "Content-Encoding: br"),
		f.sandboxed("POST", "/files?path=x", "x", asBytes, "X-Metadata-A: b"), f.sandboxed("POST", "/files?path=x&username=root", "x", asBytes), f.sandboxed("POST", "/files/compose", `{"source_paths":["a"],"destination":"b"}`, asJSON))
	assert.Equal(t, f.read("home/user/packed"), "packed")
	assert.Equal(t, f.read("home/user/a/two.txt")+f.read("tmp/three.txt"), "23")
	f.write("home/user/empty", "")
	transcripts(t, "files_read", f.sandboxed("GET", "/files?path=a/two.txt", ""), f.sandboxed("GET", "/files?path=empty", ""), f.sandboxed("GET", "/files?path=packed", "", "Range: bytes=1-2"), f.sandboxed("GET", "/files?path=packed", "", "Accept-Encoding: gzip, deflate"),
		f.sandboxed("GET", "/files?path=nowhere", ""), f.sandboxed("GET", "/files?path=/tmp", ""), f.sandboxed("GET", "/files?path=~other/x", ""), f.sandboxed("GET", "/files?path=empty&username=root", ""), f.wire(nil, "GET", "/files?path=empty", ""))
	if beside { // of these addresses nobody else knows whose they are
		return
	}
	signed := func(operation, until string) string {
		query := "/files?path=one.txt&signature=" + url.QueryEscape(signature(f.sandbox.EnvdAccessToken, "one.txt", operation, until))
		if until != "" {
			query += "&signature_expiration=" + until
		}
		return query
	}
	mask := func(exchange string) string {
		return regexp.MustCompile(`signature=\S+? HTTP|signature=[^& ]+`).ReplaceAllStringFunc(exchange, func(found string) string {
			if strings.HasSuffix(found, " HTTP") {
				return "signature={signature} HTTP"
			}
			return "signature={signature}"
		})
	}
	transcripts(t, "files_signed", mask(f.wire(nil, "GET", signed("read", ""), "")), mask(f.wire(nil, "GET", strings.Replace(signed("read", "4000000000"), "&signature_expiration", "&signature_expiration", 1), "")),
		mask(f.wire(nil, "POST", signed("write", ""), form("one.txt", "changed"), asForm)), mask(f.wire(nil, "GET", signed("read", "1000000000"), "")), mask(f.wire(nil, "GET", signed("write", ""), "")))
	assert.Equal(t, f.read("home/user/one.txt"), "changed")
}

func TestCodeOnTheWire(t *testing.T) {
	f := start(t)
	execute := func(body string) string { return f.sandboxed("POST", "/execute", body, asJSON) }
	transcripts(t, "execute", execute(`{"code":"40 + 2","context_id":null,"language":null,"env_vars":{}}`), execute(`{"code":"print","language":"python"}`), execute(`{"code":"draw"}`), execute(`{"code":"fail"}`), execute(`{"code":"crash"}`),
		execute(`{"code":"1","language":"r"}`), execute(`{"code":"1","language":"python","context_id":"context-1"}`), execute(`{"code":"1","context_id":"nonsense"}`), execute(`{}`), execute(`{"code":1}`), execute(`{"code":`),
		f.wire(nil, "POST", "/execute", `{"code":"1"}`, asJSON, "E2b-Sandbox-Id: "+f.sandbox.SandboxID))
	traffic := []string{"E2b-Sandbox-Id: " + f.sandbox.SandboxID, "E2b-Traffic-Access-Token: " + f.sandbox.TrafficAccessToken, asJSON}
	of := func(method, path, body string) string { return f.wire(nil, method, path, body, traffic...) }
	transcripts(t, "contexts", of("POST", "/contexts", `{"language":"javascript","cwd":"/tmp"}`), of("POST", "/contexts", `{}`), of("POST", "/contexts", `{"language":"java"}`), of("POST", "/contexts", `{"language":1}`), of("GET", "/contexts", ""),
		execute(`{"code":"1","context_id":"context-2"}`), of("POST", "/contexts/context-2/restart", ""), of("POST", "/contexts/nonsense/restart", ""), of("DELETE", "/contexts/context-2", ""), of("DELETE", "/contexts/context-2", ""),
		f.wire(nil, "GET", "/contexts", "", "E2b-Sandbox-Id: "+f.sandbox.SandboxID))
}

// A route that is new needs a golden file with a request, and nothing here.
func TestEachRouteHasATranscript(t *testing.T) {
	operations := start(t).server.Operations("e2b")
	untold, err := frontdoortest.Untranscribed(operations, "/e2b")
	assert.NilError(t, err)
	assert.Equal(t, strings.Join(untold, "\n"), "")
	assert.Assert(t, len(operations) > 60)
}
