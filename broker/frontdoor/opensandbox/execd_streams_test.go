package opensandbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// told is an event as a client reads it.
type told struct {
	Type    string
	Text    string
	Count   int `json:"execution_count"`
	Results map[string]string
	Error   *struct {
		Name      string `json:"ename"`
		Value     string `json:"evalue"`
		Traceback []string
	}
}

// String is an event in a line, for comparisons.
func (e told) String() string {
	switch {
	case e.Error != nil:
		return fmt.Sprintf("error %s %q %q", e.Error.Name, e.Error.Value, e.Error.Traceback)
	case e.Results != nil:
		return fmt.Sprintf("result %v", e.Results)
	case e.Count > 0:
		return fmt.Sprintf("%s %d", e.Type, e.Count)
	case e.Type == "init", e.Type == "execution_complete":
		return e.Type
	default:
		return fmt.Sprintf("%s %q", e.Type, e.Text)
	}
}

// events are those of an answer, without the pings.
func (a answer) events() (list []string) {
	a.t.Helper()
	for text := range strings.SplitSeq(strings.TrimSuffix(a.wants(http.StatusOK).text, "\n\n"), "\n\n") {
		var e told
		assert.NilError(a.t, json.Unmarshal([]byte(text), &e), text)
		if e.Type != "ping" {
			list = append(list, e.String())
		}
	}
	return list
}

// bodyOf is a body that asks for a command.
func bodyOf(t *testing.T, command string) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{"command": command})
	assert.NilError(t, err)
	return string(body)
}

func TestACommandIsStreamedWholeToWhoeverReads(t *testing.T) {
	f := start(t)
	fifo := filepath.Join(f.box.root, "read")
	assert.NilError(t, syscall.Mkfifo(fifo, 0o600))
	// Each round is less than what the broker keeps of a command's output, and is printed when
	// the one before was read; all of them together are near a hundred times as much.
	const rounds, lines = 100, 100
	assert.Assert(t, lines*9 < int(instancetest.Limits().Output))
	script := fmt.Sprintf(`exec 3<>%s; for i in {0..%d}; do printf '%%08d\n' $(seq $((i*%d)) $((i*%d+%d))); read -r -u 3; done`, fifo, rounds-1, lines, lines, lines-1)
	resp, err := f.client.Do(f.request(t.Context(), http.MethodPost, f.endpoint+"/command", strings.NewReader(bodyOf(t, script)), "X-EXECD-ACCESS-TOKEN: "+f.token))
	assert.NilError(t, err)
	defer resp.Body.Close()
	acknowledge, err := os.OpenFile(fifo, os.O_RDWR, 0)
	assert.NilError(t, err)
	defer acknowledge.Close()
	n, last := 0, told{}
	for scanner := bufio.NewScanner(resp.Body); scanner.Scan(); {
		if scanner.Text() == "" {
			continue
		}
		last = told{}
		assert.NilError(t, json.Unmarshal(scanner.Bytes(), &last))
		if last.Type != "stdout" {
			continue
		}
		assert.Equal(t, last.Text, fmt.Sprintf("%08d", n))
		if n++; n%lines == 0 {
			_, err := acknowledge.WriteString("\n")
			assert.NilError(t, err)
		}
	}
	assert.Equal(t, last.String(), "execution_complete")
	assert.Equal(t, n, rounds*lines)
}

func TestOutputThatIsLostIsNoSuccess(t *testing.T) {
	// 5,000 bytes are printed, and 1,024 kept.
	const lost = `3976 bytes of the output are missing: the command printed faster than they were read.`
	for name, test := range map[string]struct{ command, last string }{
		"of a command that succeeds": {"seq 1000 1999", `error OutputLostError "` + lost + `" ["exit status 0" "` + lost + `"]`},
		"of one that fails":          {"seq 1000 1999; exit 7", `error CommandExecError "7" ["exit status 7" "` + lost + `"]`},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			f.box.reading = func(req sdk.ReadCommandRequest) { // the reader comes when all was printed
				req.StdoutOffset, req.StderrOffset = math.MaxInt64, math.MaxInt64
				_, err := f.box.commands.ReadCommand(t.Context(), req, func(sdk.CommandOutput) error { return nil })
				assert.Check(t, err)
			}
			events := f.execd(http.MethodPost, "/command", bodyOf(t, test.command)).events()
			assert.DeepEqual(t, events[:3], []string{"init", `stdout "795"`, `stdout "1796"`}) // what is left of a line is one
			assert.DeepEqual(t, events[len(events)-2:], []string{`stdout "1999"`, test.last})
		})
	}
}

// withCode makes this a sandbox with contexts. What code does in them is up to the test.
func withCode(b *box) {
	b.Capabilities = append(b.Capabilities, sdk.CapabilityContexts, sdk.CapabilityArtifacts)
	b.contexts.Adopt(sdk.CodeContext{ID: "c1", Language: sdk.Python}, sdk.CodeContext{ID: "c2", Language: sdk.Python})
}

// There is no stream of events about a context that there is not.
func TestCodeInAContextThatThereIsNot(t *testing.T) {
	f := start(t, withCode)
	f.execd(http.MethodPost, "/code", `{"code": "1", "context": {"id": "c3"}}`).refuses(http.StatusNotFound, "SB013")
	f.execd(http.MethodPost, "/session/c3/run", `{"command": "true"}`).refuses(http.StatusNotFound, "SB013")
	assert.Check(t, is.Len(f.box.Executions(), 0))
}

func TestHowLongThingsMayTake(t *testing.T) {
	f := start(t, withCode)
	var timeouts []time.Duration
	f.box.asked = func(req sdk.CommandRequest) { timeouts = append(timeouts, req.Timeout) }
	for _, body := range []string{`{"command": "true"}`, `{"command": "true", "timeout": 86400000}`, `{"command": "true", "background": true}`} {
		f.execd(http.MethodPost, "/command", body).wants(http.StatusOK)
	}
	f.execd(http.MethodPost, "/code", `{"code": "true"}`).wants(http.StatusOK)
	assert.DeepEqual(t, timeouts, []time.Duration{0, 24 * time.Hour, 0, 0})

	f.execd(http.MethodPost, "/code", `{"code": "1", "context": {"id": "c1"}}`).wants(http.StatusOK)
	f.execd(http.MethodPost, "/session/c1/run", `{"command": "true"}`).wants(http.StatusOK)
	f.execd(http.MethodPost, "/session/c1/run", `{"command": "true", "timeout": 1500}`).wants(http.StatusOK)
	executions := f.box.Executions()
	assert.Equal(t, len(executions), 3)
	most := instancetest.Limits().MaxTimeout
	for i, want := range []time.Duration{most, most, 1500 * time.Millisecond} {
		assert.Check(t, is.Equal(executions[i].Timeout, want), i)
	}
	refusal := f.execd(http.MethodPost, "/session/c1/run", fmt.Sprintf(`{"command": "true", "timeout": %d}`, most.Milliseconds()+1))
	refusal.refuses(http.StatusBadRequest, "SB010")
	assert.Check(t, is.Contains(refusal.text, "timeout"))
	assert.Check(t, is.Contains(refusal.text, "600 seconds"), "the bound")
}

func TestTheEventsOfACell(t *testing.T) {
	value := func(group int, kind, data string) sdk.Artifact {
		return sdk.Artifact{Kind: sdk.ArtifactResult, Group: group, MIMEType: kind, Data: []byte(data)}
	}
	const cut = `The output is longer than the operator allows (limits.output), and the rest of it is missing.`
	// What code makes is a text for standard output, one that begins with ! for standard
	// error, or an artifact.
	for name, test := range map[string]struct {
		path   string
		makes  []any
		result sdk.ExecuteResult
		want   []string
	}{
		"a character in pieces": {
			makes: []any{"a\xe2", "\x82", "\xac\n", "\xe2"},
			want:  []string{"init", `stdout "a"`, `stdout "€\n"`, `stdout "�"`, "execution_complete"},
		},
		"characters of two streams in pieces": {
			makes: []any{"\xe2", "!\xc3", "\x82", "!\xa9", "\xac"},
			want:  []string{"init", `stderr "é"`, `stdout "€"`, "execution_complete"},
		},
		"values in several forms, with output between them": {
			makes: []any{
				value(1, "text/html", "<b>"), "x", value(1, "text/plain", "b"), "y", value(2, "image/png", "\x89"),
				sdk.Artifact{Kind: sdk.ArtifactFile, Group: 3, Name: "f"},
				value(4, "application/json", "1"),
			},
			want: []string{
				"init", `stdout "x"`, `stdout "y"`, "execution_count 1", "result map[text:b text/html:<b> text/plain:b]",
				"result map[image/png:iQ==]", "result map[application/json:1]", "execution_complete",
			},
		},
		"output above the limit": {
			makes: []any{"ab\xe2"}, result: sdk.ExecuteResult{Truncated: true},
			want: []string{"init", `stdout "ab"`, `error OutputLostError "` + cut + `" ["exit status 0" "` + cut + `"]`},
		},
		"output above the limit, and a failure": {
			makes: []any{"!NameError: x\n"}, result: sdk.ExecuteResult{Truncated: true, Status: sdk.StatusFailed, ExitCode: 3},
			want: []string{"init", `stderr "NameError: x\n"`, `error NameError "x" ["NameError: x" "` + cut + `"]`},
		},
		"output above the limit, of a session": {
			path: "/session/c1/run", makes: []any{"a\nb"}, result: sdk.ExecuteResult{Truncated: true},
			want: []string{"init", `stdout "a"`, `stdout "b"`, `error OutputLostError "` + cut + `" ["exit status 0" "` + cut + `"]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, withCode)
			f.box.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				for _, one := range test.makes {
					var err error
					switch one := one.(type) {
					case sdk.Artifact:
						err = out.Artifact(one)
					case string:
						if text, stderr := strings.CutPrefix(one, "!"); stderr {
							err = out.Stderr([]byte(text))
						} else {
							err = out.Stdout([]byte(one))
						}
					}
					if err != nil {
						return sdk.ExecuteResult{}, err
					}
				}
				if test.result.Status == "" {
					test.result.Status = sdk.StatusSucceeded
				}
				return test.result, nil
			}
			path, body := "/code", `{"code": "1", "context": {"id": "c1", "language": "python"}}`
			if test.path != "" {
				path, body = test.path, bodyOf(t, "x")
			}
			assert.DeepEqual(t, f.execd(http.MethodPost, path, body).events(), test.want)
		})
	}
	t.Run("each context counts its own", func(t *testing.T) {
		f := start(t, withCode)
		f.box.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, out.Artifact(value(1, "text/plain", "1"))
		}
		for _, want := range []string{"c1 execution_count 1", "c1 execution_count 2", "c2 execution_count 1"} {
			id, count, _ := strings.Cut(want, " ")
			events := f.execd(http.MethodPost, "/code", `{"code": "1", "context": {"id": "`+id+`"}}`).events()
			assert.DeepEqual(t, events, []string{"init", count, "result map[text:1 text/plain:1]", "execution_complete"})
		}
	})
}

func TestTheDirectoryOfACommand(t *testing.T) {
	f := start(t, func(b *box) {
		b.programs.Env = []string{"HOME=/workspace", "DATA=/workspace/data", "TRICK=/workspace/$(touch x);'", "LONG=" + strings.Repeat("/.", 1500)}
	})
	for _, name := range []string{"workspace/data/x y", "workspace/$(touch x);'"} {
		assert.NilError(t, os.MkdirAll(filepath.Join(f.box.root, name), 0o755))
	}
	for cwd, want := range map[string]string{
		"/workspace/data":                "/workspace/data",
		"~":                              "/workspace",
		"$HOME/data":                     "/workspace/data",
		"~/data/x y":                     "/workspace/data/x y",
		"${DATA}/$SUB":                   "/workspace/data/x y",
		"$TRICK":                         "/workspace/$(touch x);'",
		"$NOBODY/data":                   "",
		"$HOME/nowhere":                  "",
		"$LONG$LONG":                     "",
		"/" + strings.Repeat("./", 2048): "",
	} {
		for _, background := range []bool{false, true} {
			body, err := json.Marshal(map[string]any{"argv": []string{"pwd"}, "cwd": cwd, "background": background, "envs": map[string]string{"SUB": "x y"}})
			assert.NilError(t, err)
			answer := f.execd(http.MethodPost, "/command", string(body))
			switch {
			case want == "":
				answer.refuses(http.StatusBadRequest, "SB010")
				assert.Check(t, is.Contains(answer.text, "cwd"), cwd)
			case !background:
				assert.Check(t, is.DeepEqual(answer.events(), []string{"init", fmt.Sprintf("stdout %q", f.box.root+want), "execution_complete"}), cwd)
			default:
				answer.wants(http.StatusOK)
			}
		}
	}
	var cwd string
	f.box.asked = func(req sdk.CommandRequest) { cwd = req.Cwd }
	f.execd(http.MethodPost, "/pty", `{"cwd": "~/data"}`).wants(http.StatusCreated)
	assert.Equal(t, cwd, "/workspace/data", "of a terminal")
	_, err := os.Stat(filepath.Join(f.box.workspace, "x"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestWhatAStatusShowsOfACommand(t *testing.T) {
	f := start(t, func(b *box) { b.programs.Env = []string{"HOME=/workspace"} })
	for body, want := range map[string]string{
		`{"command": "exec 2>&1\necho a"}`:                                              "exec 2>&1\necho a",
		`{"command": "echo a", "background": true, "cwd": "~"}`:                         "echo a",
		`{"argv": ["sh", "-c", "echo a"], "background": true}`:                          "sh -c echo a",
		`{"argv": ["sh", "-c", "echo a"]}`:                                              "sh -c echo a",
		`{"argv": ["bash", "-c", "exec 2>&1\n$0", "true", "b c"], "background": false}`: "bash -c exec 2>&1\n$0 true b c",
	} {
		first, _, _ := strings.Cut(f.execd(http.MethodPost, "/command", body).wants(http.StatusOK).text, "\n")
		var begun told
		assert.NilError(t, json.Unmarshal([]byte(first), &begun))
		var status struct{ Content string }
		f.execd(http.MethodGet, "/command/status/"+begun.Text, "").wants(http.StatusOK).decode(&status)
		assert.Check(t, is.Equal(status.Content, want), body)
		logs := f.execd(http.MethodGet, "/command/"+begun.Text+"/logs", "")
		assert.Check(t, is.Equal(logs.StatusCode == http.StatusOK, strings.Contains(body, `"background": true`)), body)
	}
}

func TestFieldsThatAreNotKnownAreRefused(t *testing.T) {
	f := start(t, withCode)
	for name, test := range map[string]struct{ path, body, end, field string }{
		"of a command":              {"/command", `{"command": "true"`, "}", "stdin"},
		"of code":                   {"/code", `{"code": "1"`, "}", "stdin"},
		"of code, about a context":  {"/code", `{"code": "1", "context": {"id": "c1"`, "}}", "context.stdin"},
		"of a context":              {"/code/context", `{"language": "python"`, "}", "stdin"},
		"of a session":              {"/session", `{"cwd": "/"`, "}", "stdin"},
		"of a command in a session": {"/session/c1/run", `{"command": "true"`, "}", "stdin"},
		"of permissions":            {"/files/permissions", `{"/workspace": {"mode": 755`, "}}", "stdin"},
		"of a directory":            {"/directories", `{"/workspace/d": {"mode": 755`, "}}", "stdin"},
		"of what is moved":          {"/files/mv", `[{"src": "a", "dest": "b"`, "}]", "stdin"},
		"of what is replaced":       {"/files/replace", `{"a": {"old": "b"`, "}}", "stdin"},
	} {
		t.Run(name, func(t *testing.T) {
			refusal := f.execd(http.MethodPost, test.path, test.body+`, "stdin": "x"`+test.end)
			refusal.refuses(http.StatusBadRequest, "SB010")
			assert.Check(t, is.Contains(refusal.text, `"`+test.field+":"))
			for _, nothing := range []string{`""`, `null`, `false`, `{}`, `[]`} {
				answer := f.execd(http.MethodPost, test.path, test.body+`, "stdin": `+nothing+test.end)
				assert.Check(t, !strings.Contains(answer.text, "stdin"), answer.text)
			}
		})
	}
}

func TestACommandOfASessionWithADirectory(t *testing.T) {
	f := start(t, withCode)
	for command, prints := range map[string][]string{
		`# nothing`:                {},
		`echo a \`:                 {`stdout "a \\"`},
		`echo 'it is'`:             {`stdout "it is"`},
		"x=1\necho $x # one\npwd":  {`stdout "1"`, `stdout "/tmp"`},
		"cat <<END\n$((1+1))\nEND": {`stdout "2"`},
	} {
		body, err := json.Marshal(map[string]string{"command": command, "cwd": "/tmp"})
		assert.NilError(t, err)
		f.execd(http.MethodPost, "/session/c1/run", string(body)).wants(http.StatusOK)
		executions := f.box.Executions()
		// What the session gets, a shell does as it does the command.
		events := f.execd(http.MethodPost, "/command", bodyOf(t, executions[len(executions)-1].Code)).events()
		want := append(append([]string{"init"}, prints...), "execution_complete")
		assert.Check(t, is.DeepEqual(events, want), command)
	}
}

func TestPortsBelowTheDaemon(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "served "+r.URL.RequestURI())
	}))
	defer server.Close()
	address := server.Listener.Addr().(*net.TCPAddr)
	f := start(t, func(b *box) {
		b.OnDialPort = func(ctx context.Context, _ string, port uint16) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		}
	})
	for path, want := range map[string]string{"/a/b?c=d": "served /a/b?c=d", "/": "served /", "": "served /"} {
		page := f.execd(http.MethodGet, fmt.Sprintf("/proxy/%d%s", address.Port, path), "").wants(http.StatusOK)
		assert.Check(t, is.Equal(page.text, want))
	}
	for _, port := range []string{"44772", "18080"} {
		f.execd(http.MethodGet, "/proxy/"+port+"/ping", "").refuses(http.StatusNotFound, "SB013")
	}
	f.execd(http.MethodGet, "/proxy/0/", "").refuses(http.StatusBadRequest, "SB010")
}

func TestThePolicyWhereNobodyPromisesOne(t *testing.T) {
	f := start(t)
	policy := f.do(http.MethodGet, "/sandboxes/"+f.sandbox+"/proxy/18080/policy", "", "OPENSANDBOX-EGRESS-AUTH: "+f.token).wants(http.StatusOK)
	assert.Equal(t, policy.text, `{"status":"ok","mode":"allow_all","enforcementMode":"none","policy":{"defaultAction":"allow","egress":[]}}`)
	refusal := f.do(http.MethodPost, "/v1/sandboxes", `{"image": {"uri": "python:3.12"}, "networkPolicy": {"defaultAction": "deny"}}`, apiKey)
	refusal.refuses(http.StatusNotImplemented, "SB015")
	assert.Check(t, is.Contains(refusal.text, "network"))
}
