package mcp_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/frontdoortest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
)

// A transcript is a request and its answer as bytes on the wire. Those of one subject are
// one golden file.

const bearerToken = "Authorization: Bearer " + token

// post sends a message, with the fields that clients send beside those that are given, and
// returns the head and the body of the answer. A field without a value is left out.
func (f *fixture) post(body string, fields ...string) (head, answer string) {
	f.t.Helper()
	return f.send("POST", "/mcp", body, fields...)
}

func (f *fixture) send(method, path, body string, fields ...string) (head, answer string) {
	f.t.Helper()
	got, err := frontdoortest.Exchange(f.address, requestOf(method, path, body, fields), nil)
	assert.NilError(f.t, err, got)
	head, answer, _ = strings.Cut(got, "\r\n\r\n")
	if strings.Contains(head, "Transfer-Encoding: chunked") {
		whole, err := io.ReadAll(httputil.NewChunkedReader(strings.NewReader(answer)))
		assert.NilError(f.t, err)
		answer = string(whole)
	}
	return head, answer
}

func requestOf(method, path, body string, fields []string) string {
	all := []string{"Host: 127.0.0.1", bearerToken, "Accept: application/json, text/event-stream"}
	if body != "" {
		all = append(all, "Content-Type: application/json")
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		all = slices.DeleteFunc(all, func(other string) bool { return strings.HasPrefix(other, name+":") })
		if value != "" {
			all = append(all, field)
		}
	}
	text := fmt.Sprintf("%s %s HTTP/1.1\r\n%s\r\nX-Request-Id: r1\r\nConnection: close\r\n", method, path, strings.Join(all, "\r\n"))
	if body != "" {
		text += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return text + "\r\n" + body
}

// statusIn is the status of an answer.
func statusIn(head string) string {
	_, rest, _ := strings.Cut(head, " ")
	status, _, _ := strings.Cut(rest, " ")
	return status
}

// messageIn is the one message of an answer, be it a stream or not.
func messageIn(answer string) string {
	for line := range strings.Lines(answer) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.TrimSpace(data) != "" {
			answer = strings.TrimSpace(data)
		}
	}
	return answer
}

var changing = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "{time}"},
	{regexp.MustCompile(`(Date: |Content-Length: ).*`), "$1{}"},
	{regexp.MustCompile(`(Mcp-Session-Id: )[A-Z2-7]+`), "$1{session}"},
	{regexp.MustCompile(`([":](?:x-|s-)?)[a-z2-7]{20}\b`), "$1{id}"},
}

// wire is a transcript.
func (f *fixture) wire(method, path, body string, fields ...string) string {
	f.t.Helper()
	head, answer := f.send(method, path, body, fields...)
	lines := strings.Split(head, "\r\n")
	slices.Sort(lines[1:])
	text := ">>> " + requestOf(method, path, body, fields) + "\n\n<<< " + strings.Join(lines, "\n") + "\n\n" + answer + "\n\n"
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for _, change := range changing {
		text = change.what.ReplaceAllString(text, change.with)
	}
	return text
}

func initialize(version string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, version)
}

func callOf(id, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
}

// stateless is a message with what the first version without sessions wants in each.
func stateless(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, id, method, params)
}

const version25 = "Mcp-Protocol-Version: 2025-11-25"

func TestOnTheWire(t *testing.T) {
	f := start(t)
	code := `{"language":"python","code":"print moin"}`
	for name, transcripts := range map[string][]string{
		"initialize": {
			f.wire("POST", "/mcp", initialize("2025-11-25")),
			f.wire("POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, version25, "Mcp-Session-Id: ABC"),
			f.wire("POST", "/mcp/", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, version25),
			f.wire("GET", "/mcp", "", version25),
			f.wire("DELETE", "/mcp", "", version25, "Mcp-Session-Id: ABC"),
		},
		"list": {
			f.wire("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, version25),
		},
		"call": {
			f.wire("POST", "/mcp", callOf("1", "run_code", code), version25),
			f.wire("POST", "/mcp", callOf(`"two"`, "run_code", `{"language":"python","code":"fail"}`), version25),
			f.wire("POST", "/mcp", callOf("3", "run_code", `{"language":"cobol","code":"x"}`), version25),
			f.wire("POST", "/mcp", callOf("4", "no_such_tool", `{}`), version25),
			f.wire("POST", "/mcp", stateless("5", "tools/call", `"name":"run_code","arguments":`+code+`,`), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: run_code"),
		},
		"refusals": {
			f.wire("POST", "/mcp", callOf("1", "run_code", code), version25, "Authorization: "),
			f.wire("POST", "/mcp", callOf("1", "run_code", code), version25, "Authorization: Bearer wrong"),
			f.wire("POST", "/mcp", callOf("1", "run_code", code), version25, "Origin: https://evil.example"),
			f.wire("POST", "/mcp", callOf("1", "run_code", code), version25, "Origin: http://evil.example", "Host: evil.example"),
			f.wire("POST", "/mcp", "{", version25),
			f.wire("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"nothing"}`, version25),
			f.wire("POST", "/mcp", callOf("1", "run_code", code), "Mcp-Protocol-Version: 1999-01-01"),
			f.wire("POST", "/mcp", "["+strings.TrimSuffix(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 21), ",")+"]"),
			f.wire("GET", "/.well-known/oauth-protected-resource", ""),
		},
	} {
		t.Run(name, func(t *testing.T) { golden.Assert(t, strings.Join(transcripts, ""), name+".golden") })
	}
}

func TestEachRouteHasATranscript(t *testing.T) {
	f := start(t)
	missing, err := frontdoortest.Untranscribed(f.server.Operations("mcp"), "/mcp")
	assert.NilError(t, err)
	assert.Check(t, is.Len(missing, 0))
}

func TestAllVersionsOfTheProtocol(t *testing.T) {
	f := start(t)
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			head, answer := f.post(initialize(version))
			assert.Equal(t, statusIn(head), "200", answer)
			assert.Check(t, is.Contains(messageIn(answer), `"protocolVersion":"`+version+`"`))
			fields := []string{"Mcp-Protocol-Version: " + version}
			if version < "2025-06-18" {
				fields = nil // the field came with that version
			}
			head, answer = f.post(callOf("1", "run_code", `{"language":"python","code":"print moin"}`), fields...)
			assert.Equal(t, statusIn(head), "200", answer)
			assert.Check(t, is.Contains(messageIn(answer), `exit code 0\nmoin\n`))
		})
	}
	t.Run("2026-07-28", func(t *testing.T) {
		head, answer := f.post(stateless("1", "tools/call", `"name":"run_code","arguments":{"language":"python","code":"print moin"},`),
			"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: run_code")
		assert.Equal(t, statusIn(head), "200", answer)
		assert.Check(t, is.Contains(messageIn(answer), `exit code 0\nmoin\n`))
		assert.Check(t, !strings.Contains(head, "Mcp-Session-Id"), head)
	})
}

func TestWhoIsLetIn(t *testing.T) {
	f := start(t)
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, test := range map[string]struct {
		fields []string
		status string
	}{
		"a token":                          {nil, "200"},
		"a token as an API key":            {[]string{"Authorization: ", "X-API-Key: " + token}, "200"},
		"an API key beside another scheme": {[]string{"Authorization: Basic YTpi", "X-API-Key: " + token}, "200"},
		"no token":                         {[]string{"Authorization: "}, "401"},
		"a wrong token":                    {[]string{"Authorization: Bearer wrong"}, "401"},
		"two tokens that differ":           {[]string{"X-API-Key: " + another}, "401"},
		"a page of this origin":            {[]string{"Origin: http://127.0.0.1"}, "200"},
		"a page of another origin":         {[]string{"Origin: https://evil.example"}, "403"},
		"a page without an origin":         {[]string{"Origin: null"}, "403"},
		"a page by a name that leads here": {[]string{"Origin: http://evil.example", "Host: evil.example"}, "403"},
		"a proxy on this machine":          {[]string{"Host: sandboxes.example"}, "200"},
	} {
		t.Run(name, func(t *testing.T) {
			head, answer := f.post(ping, test.fields...)
			assert.Equal(t, statusIn(head), test.status, answer)
			if test.status == "401" {
				assert.Check(t, is.Regexp(`(?m)^Www-Authenticate: Bearer `, head))
				assert.Check(t, !strings.Contains(head, "resource_metadata"), head)
			}
			assert.Check(t, json.Valid([]byte(messageIn(answer))), answer)
		})
	}
}

func TestALargeArgumentIsRefusedClearly(t *testing.T) {
	f := start(t)
	large := callOf("1", "write_file", `{"session":"s","path":"a","content":"`+strings.Repeat("x", 10<<20)+`"}`)
	head, answer := f.post(large, version25)
	assert.Equal(t, statusIn(head), "413", answer)
	assert.Check(t, is.Contains(answer, "SB010"))
	assert.Check(t, is.Contains(answer, "larger than the operator allows"))
	whole := callOf("1", "write_file", `{"session":"s","path":"a","content":"`+strings.Repeat("x", 1<<20)+`"}`)
	head, answer = f.post(whole, version25)
	assert.Equal(t, statusIn(head), "200", answer)
	assert.Check(t, is.Contains(messageIn(answer), "1048576 bytes are in /workspace/a"))
}

// TestOldClientsCancelByAnotherRequest has two clients of one tenant give their calls the
// same ID, as they count them from 0.
func TestOldClientsCancelByAnotherRequest(t *testing.T) {
	f := start(t)
	sessionIn := regexp.MustCompile(`(?m)^Mcp-Session-Id: (\w+)`)
	type started struct {
		session string
		pid     string
		left    chan string
	}
	begin := func(name string) started {
		head, _ := f.post(initialize("2025-06-18"))
		s := started{session: sessionIn.FindStringSubmatch(head)[1], left: make(chan string, 1)}
		go func() {
			_, answer := f.post(callOf("1", "run_command", fmt.Sprintf(`{"session":%q,"command":"echo $$ > pid; exec sleep 1000"}`, name)), version25, "Mcp-Session-Id: "+s.session)
			s.left <- answer
		}()
		s.pid = waitForFile(t, filepath.Join(f.box.root, "workspace", "pid"))
		return s
	}
	runs := func(pid string) bool {
		_, err := os.Stat("/proc/" + pid)
		return err == nil
	}
	cancel := func(session, fields string) {
		head, _ := f.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, version25, "Mcp-Session-Id: "+session, cmp.Or(fields, bearerToken))
		assert.Equal(t, statusIn(head), "202")
	}
	first, second := begin("one"), begin("two")
	cancel("ANOTHER", "")
	cancel(second.session, "Authorization: Bearer "+another) // of another tenant
	assert.Check(t, runs(first.pid) && runs(second.pid))
	cancel(second.session, "")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if runs(second.pid) {
			return poll.Continue("it runs")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	<-second.left
	assert.Check(t, runs(first.pid))
	cancel(first.session, "")
	<-first.left
}

// TestAClientThatLeavesEndsItsProgram is about clients of all versions: nobody could be
// answered any more.
func TestAClientThatLeavesEndsItsProgram(t *testing.T) {
	f := start(t)
	for version, message := range map[string]string{
		"2025-06-18": callOf("1", "run_command", `{"session":"s","command":"echo $$ > pid; exec sleep 1000"}`),
		"2026-07-28": stateless("1", "tools/call", `"name":"run_command","arguments":{"session":"s","command":"echo $$ > pid; exec sleep 1000"},`),
	} {
		t.Run(version, func(t *testing.T) {
			conn, err := net.Dial("tcp", f.address)
			assert.NilError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, requestOf("POST", "/mcp", message, []string{"Mcp-Protocol-Version: " + version, "Mcp-Method: tools/call", "Mcp-Name: run_command"}))
			assert.NilError(t, err)
			pid := waitForFile(t, filepath.Join(f.box.root, "workspace", "pid"))
			assert.NilError(t, conn.Close())
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if _, err := os.Stat("/proc/" + pid); err == nil {
					return poll.Continue("it runs")
				}
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute))
		})
	}
}

func FuzzMessages(f *testing.F) {
	door := start(f, func(o *api.Options, b *box) {
		o.Bounds.MaxBody = 64 << 10
		b.commands = localcommands.New(localcommands.Options{
			Check: func(string) error { return nil },
			Start: func(context.Context, string, localcommands.Program) (localcommands.Process, error) {
				return nil, sdk.Errorf(sdk.CodeNotAllowed, "nothing is run here") // it would be on this machine
			},
		})
	})
	for _, tool := range []string{"run_code", "run_command", "command_output", "stop_command", "write_file", "read_file", "list_files", "edit_file", "search_files", "expose_port", "create_session", "list_sessions", "end_session"} {
		f.Add(callOf("1", tool, `{"session":"s","path":"a","code":"print x","language":"python","offset":1e300,"port":-1,"ttl":1e-300,"wait":-1}`))
	}
	f.Add(initialize("2025-06-18"))
	f.Add(`[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`)
	f.Add(callOf(`{}`, "read_file", `null`))
	f.Fuzz(func(t *testing.T, message string) {
		if message == "" {
			return
		}
		each := *door
		each.t = t
		head, answer := each.post(message)
		status := statusIn(head)
		assert.Assert(t, status < "500", "%s\n%s", head, answer)
		assert.Assert(t, !strings.Contains(answer, "SB000"), answer)
	})
}
