// Package ragflow_test has a client that calls as RAGFlow's own provider does run code
// through the front door.
package ragflow_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func TestMain(m *testing.M) { frontdoor.Main(m) }

// code is one run.
type code struct {
	Language  string         `json:"language"`
	Code      string         `json:"code"`
	Arguments map[string]any `json:"arguments,omitempty"`
}

// outcome is what RAGFlow's provider would make of it.
type outcome struct {
	Error     string `json:"error"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exit_code"`
	Status    string `json:"status"`
	Limit     string `json:"limit"`
	Detail    string `json:"detail"`
	Timed     bool   `json:"timed"`
	Present   bool   `json:"present"`
	Result    any    `json:"result"`
	Artifacts []struct {
		Name, Text string
		MIMEType   string `json:"mime_type"`
	} `json:"artifacts"`
}

// run has the client run code.
func run(t *testing.T, endpoint, token string, runs ...code) []outcome {
	t.Helper()
	text, err := json.Marshal(runs)
	assert.NilError(t, err)
	program := exec.Command("/usr/bin/python3", filepath.Join("testdata", "client.py"), endpoint, token)
	var out, said bytes.Buffer
	program.Stdin, program.Stdout, program.Stderr = bytes.NewReader(text), &out, &said
	assert.NilError(t, program.Run(), said.String())
	var outcomes []outcome
	assert.NilError(t, json.Unmarshal(out.Bytes(), &outcomes), out.String())
	assert.Equal(t, len(outcomes), len(runs))
	return outcomes
}

const door = "front_door \"ragflow\" {\n  tenant = \"acme\"\n  timeout = \"20s\"\n}\n"

// cases are what RAGFlow's users write, and what comes of it.
var cases = []struct {
	feature, name string
	code          code
	check         func(t *testing.T, o outcome)
}{
	{"Python: arguments, results", "python", code{"python", "def main(name, n):\n    print('hi')\n    return {'hello': name, 'n': n, 'none': None}", map[string]any{"name": "x", "n": 2}}, func(t *testing.T, o outcome) {
		assert.Check(t, is.Equal(o.Status, "success"), o.Stderr)
		assert.Check(t, is.Equal(o.Stdout, "hi\n"))
		assert.Check(t, is.DeepEqual(o.Result, map[string]any{"hello": "x", "n": 2.0, "none": nil}))
		assert.Check(t, o.Present && o.Timed)
	}},
	{"Python: arguments, results", "a present null", code{"python", "def main():\n    return None", nil}, func(t *testing.T, o outcome) {
		assert.Check(t, o.Present && o.Result == nil)
	}},
	{"JavaScript: functions, CommonJS, modules", "javascript that exports an object", code{"javascript", "module.exports = { main: async (args) => ({ hello: args.name }) }", map[string]any{"name": "x"}}, func(t *testing.T, o outcome) {
		assert.Check(t, is.DeepEqual(o.Result, map[string]any{"hello": "x"}), o.Stderr)
	}},
	{"JavaScript: functions, CommonJS, modules", "javascript that exports its main", code{"javascript", "async function main(args) { return args.n + 1 }\nmodule.exports = { main };", map[string]any{"n": 1}}, func(t *testing.T, o outcome) {
		assert.Check(t, is.DeepEqual(o.Result, 2.0), o.Stderr)
	}},
	{"JavaScript: functions, CommonJS, modules", "a module's default export", code{"javascript", "export default function main() { return [1] }", nil}, func(t *testing.T, o outcome) {
		assert.Check(t, is.DeepEqual(o.Result, []any{1.0}), o.Stderr)
	}},
	{"artifacts", "artifacts without a directory made for them", code{"python", "def main():\n    open('artifacts/a.csv', 'w').write('1,2')\n    open('artifacts/b.bin', 'w').write('x')\n    return 1", nil}, func(t *testing.T, o outcome) {
		assert.Assert(t, is.Len(o.Artifacts, 1), o.Stderr)
		assert.Check(t, is.Equal(o.Artifacts[0].Name, "a.csv"))
		assert.Check(t, is.Equal(o.Artifacts[0].MIMEType, "text/csv"))
		assert.Check(t, is.Equal(o.Artifacts[0].Text, "1,2"))
	}},
	{"exceptions and exit codes", "an exception", code{"python", "def main():\n    print('before')\n    raise ValueError('boom')", nil}, func(t *testing.T, o outcome) {
		assert.Check(t, is.Equal(o.Status, "program_error"))
		assert.Check(t, is.Equal(o.ExitCode, 1))
		assert.Check(t, is.Contains(o.Stderr, "ValueError: boom"))
		assert.Check(t, is.Equal(o.Stdout, ""), "CodeExec would take it for a result")
	}},
	{"exceptions and exit codes", "an exit code is the program's own", code{"python", "import os\ndef main():\n    os._exit(124)", nil}, func(t *testing.T, o outcome) {
		assert.Check(t, is.Equal(o.Status, "program_error"))
		assert.Check(t, is.Equal(o.ExitCode, 124))
	}},
	{"exceptions and exit codes", "stderr alone decides nothing", code{"python", "import sys\ndef main():\n    sys.stderr.write('Permission denied')\n    return 1", nil}, func(t *testing.T, o outcome) {
		assert.Check(t, is.Equal(o.Status, "success"))
	}},
}

func checkCases(t *testing.T, endpoint, token string, report func(t *testing.T, name, outcome string)) {
	var runs []code
	for _, c := range cases {
		runs = append(runs, c.code)
	}
	for i, o := range run(t, endpoint, token, runs...) {
		t.Run(cases[i].name, func(t *testing.T) {
			assert.Equal(t, o.Error, "")
			if strings.HasPrefix(o.Stderr, "SB015: ") {
				report(t, cases[i].feature, frontdoor.Refused)
				return
			}
			cases[i].check(t, o)
			if !t.Failed() {
				report(t, cases[i].feature, frontdoor.Works)
			}
		})
	}
}

func TestRAGFlowRunsCodeOnEachProvider(t *testing.T) {
	var features frontdoor.Features
	frontdoor.Each(t, frontdoor.E2B, func(t *testing.T, provider string) {
		checkCases(t, frontdoor.On(t, provider, door).URL+"/ragflow", "", func(t *testing.T, name, outcome string) {
			features.Report(t, provider, name, outcome)
		})
	})
	t.Run("through several brokers", func(t *testing.T) {
		checkCases(t, frontdoor.Several(t, door)+"/ragflow", "", func(t *testing.T, name, outcome string) {
			features.Report(t, frontdoor.SelfManaged, name, outcome)
		})
	})
	if !t.Failed() {
		features.CheckPage(t, "ragflow")
	}
}

func TestRAGFlowInGVisor(t *testing.T) {
	b := frontdoor.Real(t, door)
	t.Run("with a token", func(t *testing.T) {
		assert.Equal(t, run(t, b.URL+"/ragflow", harness.Token, code{"python", "def main():\n    return 1", nil})[0].Status, "success")
		assert.Equal(t, run(t, b.URL+"/ragflow/"+harness.Token, "", code{"python", "def main():\n    return 1", nil})[0].Status, "success")
		assert.Check(t, is.Contains(run(t, b.URL+"/ragflow/wrong", "", code{"python", "def main():\n    return 1", nil})[0].Error, "SB011"))
	})
	t.Run("within limits", func(t *testing.T) {
		o := run(t, b.URL+"/ragflow", "", code{"python", "def main():\n    while True: pass", nil}, code{"python", "def main():\n    return len(bytearray(10**10))", nil})
		assert.Check(t, is.Equal(o[0].Status, "resource_limit_exceeded"))
		assert.Check(t, is.Equal(o[0].ExitCode, -124))
		assert.Check(t, is.Equal(o[0].Limit, "time"))
		assert.Check(t, is.Equal(o[0].Stderr, "Execution timeout"))
		assert.Check(t, o[1].Status == "resource_limit_exceeded" && o[1].ExitCode == -137 || strings.Contains(o[1].Stderr, "MemoryError"), "%+v", o[1])
	})
	t.Run("and none in another's sandbox", func(t *testing.T) {
		o := run(t, b.URL+"/ragflow", "", code{"python", "def main():\n    open('/tmp/left', 'w').write('x')\n    return 1", nil})
		assert.Check(t, is.Equal(o[0].Status, "success"), o[0].Stderr)
		o = run(t, b.URL+"/ragflow/"+harness.OtherToken, "", code{"python", "import os\ndef main():\n    return os.path.exists('/tmp/left')", nil})
		assert.Check(t, is.Equal(o[0].Result, false))
	})
	t.Run("the audit log says by which door", func(t *testing.T) {
		assert.DeepEqual(t, frontdoor.Audited(t, b, "ragflow"), []string{"execute_code"})
	})
	t.Run("a reload closes the door, moves it and opens it", func(t *testing.T) {
		frontdoor.Reload(t, b, "ragflow", door, "/healthz", func(t *testing.T, path string) {
			assert.Equal(t, run(t, b.URL+path, "", code{"python", "def main():\n    return 1", nil})[0].Status, "success")
		})
	})
	t.Run("a reload gives the door an address of its own, moves it and takes it away", func(t *testing.T) { ownAddress(t, b) })
	t.Run("requests of nonsense", func(t *testing.T) { nonsense(t, b) })
}

// free is an address where nothing listens.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	assert.NilError(t, listener.Close())
	return listener.Addr().String()
}

// ownAddress has the door at an address where nothing else is, for clients that know a
// host and a port alone.
func ownAddress(t *testing.T, b *harness.Broker) {
	text, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	write := func(settings string) {
		t.Helper()
		block := strings.Replace(door, "{\n", "{\n"+settings, 1)
		assert.NilError(t, os.WriteFile(b.ConfigFile(), []byte(strings.ReplaceAll(string(text), door, block)), 0o600))
	}
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	status := func(address, path string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		assert.NilError(t, err)
		resp, err := client.Do(req)
		if err != nil {
			return 0
		}
		assert.NilError(t, resp.Body.Close())
		return resp.StatusCode
	}
	await := func(address string, want int) {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if got := status(address, "/healthz"); got != want {
				return poll.Continue("%s: %d", address, got)
			}
			return poll.Success()
		}, poll.WithTimeout(time.Minute))
	}
	one := code{"python", "def main():\n    return 1", nil}
	first, second, main := free(t), free(t), strings.TrimPrefix(b.URL, "http://")

	write("  listen = \"" + first + "\"\n")
	await(first, 200)
	assert.Check(t, is.Equal(run(t, "http://"+first, "", one)[0].Status, "success"))
	assert.Check(t, is.Equal(run(t, "http://"+first+"/"+harness.Token, "", one)[0].Status, "success"))
	assert.Check(t, is.Equal(status(main, "/ragflow/healthz"), 404), "it has no path then")
	assert.Check(t, is.Equal(status(first, "/api/v1/instances"), 404), "and nothing else is there")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer taken.Close()
	write("  listen = \"" + taken.Addr().String() + "\"\n")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if !strings.Contains(b.Log(), "another program listens on "+taken.Addr().String()) {
			return poll.Continue("not refused")
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	assert.Check(t, is.Equal(status(first, "/healthz"), 200), "it is where it was")

	write("  listen = \"" + second + "\"\n  path = \"/ragflow\"\n")
	await(second, 200)
	assert.Check(t, is.Equal(status(main, "/ragflow/healthz"), 200), "it is at both")
	client.CloseIdleConnections() // they outlive their listener
	await(first, 0)

	write("")
	await(second, 0)
	assert.Check(t, is.Equal(status(main, "/ragflow/healthz"), 200))
}

// nonsense sends what no client would, and wants a refusal each time.
func nonsense(t *testing.T, b *harness.Broker) {
	const canary = "canary-of-rival"
	theirs, err := client.New(b.URL, harness.OtherToken).CreateInstance(t.Context(), client.CreateInstanceRequest{TTL: 3600, Labels: map[string]string{"owner": canary}, Env: map[string]string{"SECRET": canary}})
	assert.NilError(t, err)
	right := `{"code_b64":"` + base64.StdEncoding.EncodeToString([]byte("def main(a):\n    return a")) + `","language":"python","arguments":{"a":{"b":["c"]}}}`
	unread := `{"code_b64":"!","language":"python","arguments":{"a":1}}` // all faults are told at once, and nothing runs
	frontdoor.Nonsense{
		Door:        "ragflow",
		Credentials: http.Header{"Authorization": {"Bearer " + harness.Token}},
		Parameters:  map[string][]string{"token": {harness.Token, theirs.ID}},
		Bodies:      map[string]string{"POST /run": right, "POST /{token}/run": unread},
		Queries:     map[string]string{"token": harness.Token, "id": theirs.ID},
		Refusal: func(_ string, _ int, body []byte) error {
			var told struct {
				Detail any    `json:"detail"`
				Code   string `json:"code"`
			}
			if err := json.Unmarshal(body, &told); err != nil {
				return err
			}
			if !strings.HasPrefix(told.Code, "SB0") || told.Detail == nil {
				return errors.New("it is not of the form of the door")
			}
			return nil
		},
		Canaries: []string{canary, theirs.ID},
	}.Send(t, b, 10_000)
	assert.NilError(t, client.New(b.URL, harness.OtherToken).DestroyInstance(t.Context(), theirs.ID))
}
