// Package mcp_test has the published tools of the Model Context Protocol use the front door:
// its inspector, over HTTP and over standard input and output, and its conformance suite.
package mcp_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/npm"
)

func TestMain(m *testing.M) { frontdoor.Main(m) }

const door = "front_door \"mcp\" { }\n"

// install installs the tools, with the Node.js that they need, and returns where.
func install(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	assert.NilError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "client"))))
	npm.Install(t, dir)
	return dir
}

// node is one of the tools.
func node(t *testing.T, dir, tool string, args ...string) *exec.Cmd {
	bin := filepath.Join(dir, "node_modules", ".bin")
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "node"), append([]string{filepath.Join(bin, tool)}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "HOME="+dir, "NO_COLOR=1")
	return cmd
}

// answer is that of a call.
type answer struct {
	Content           []struct{ Type, Text string }
	StructuredContent struct {
		Code     string
		ExitCode *int `json:"exit_code"`
	}
	IsError bool
	Tools   []struct{ Name string }
}

// inspector asks a server by the inspector's command line, whose exit code is 5 where the
// tool says that it has failed.
func inspector(t *testing.T, dir string, exitCode int, args ...string) (got answer) {
	t.Helper()
	cmd := node(t, dir, "mcp-inspector", append([]string{"--cli"}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	assert.Equal(t, cmd.ProcessState.ExitCode(), exitCode, "%v\n%s%s", err, &out, &said)
	assert.NilError(t, json.Unmarshal(out.Bytes(), &got), "%s%s", &out, &said)
	return got
}

func TestPublishedToolsUseTheDoor(t *testing.T) {
	dir := install(t)
	b := frontdoor.Real(t, door)
	for name, server := range map[string][]string{
		"HTTP through several brokers": {frontdoor.Several(t, door) + "/mcp", "--header", "Authorization: Bearer " + harness.Token},
		"HTTP":                         {b.URL + "/mcp", "--header", "Authorization: Bearer " + harness.Token},
		"stdio":                        {filepath.Join(b.Dir, "bin", "sandbox-broker"), "mcp", "-e", "SANDBOX_BROKER_URL=" + b.URL, "-e", "SANDBOX_BROKER_TOKEN=" + harness.Token},
	} {
		t.Run("the inspector over "+name, func(t *testing.T) {
			ask := func(exitCode int, args ...string) answer {
				t.Helper()
				return inspector(t, dir, exitCode, append(append([]string{}, server...), args...)...)
			}
			call := func(exitCode int, tool string, args ...string) answer {
				t.Helper()
				all := []string{"--method", "tools/call", "--tool-name", tool}
				for _, arg := range args {
					all = append(all, "--tool-arg", arg)
				}
				return ask(exitCode, all...)
			}
			assert.Check(t, cmp.Len(ask(0, "--method", "tools/list").Tools, 13))

			ran := call(0, "run_code", "language=python", "code=print(6 * 7)")
			assert.Check(t, cmp.Equal(ran.Content[0].Text, "exit code 0\n42\n"))
			assert.Check(t, ran.StructuredContent.ExitCode != nil && *ran.StructuredContent.ExitCode == 0)

			failed := call(0, "run_code", "language=python", "code=import sys; sys.exit(3)")
			assert.Check(t, !failed.IsError, "a failed program is data")
			assert.Check(t, cmp.Equal(failed.Content[0].Text, "exit code 3\n"))

			refused := call(5, "run_code", "language=cobol", "code=x")
			assert.Check(t, refused.IsError)
			assert.Check(t, cmp.Equal(refused.StructuredContent.Code, "SB010"))
			assert.Check(t, strings.HasPrefix(refused.Content[0].Text, "SB010 "), refused.Content[0].Text)
		})
	}
	t.Run("the conformance suite", func(t *testing.T) {
		suite := node(t, dir, "conformance", "server", "--url", withToken(t, b.URL)+"/mcp", "--expected-failures", "expected-failures.yml")
		out, err := suite.CombinedOutput()
		assert.NilError(t, err, "%s", out)
	})
	t.Run("what it causes is in the audit log", func(t *testing.T) {
		assert.Check(t, cmp.DeepEqual(frontdoor.Audited(t, b, "mcp"), []string{"execute_code"}))
	})
	t.Run("a reload closes and opens it", func(t *testing.T) {
		text, err := os.ReadFile(b.ConfigFile())
		assert.NilError(t, err)
		for _, step := range []struct {
			block  string
			status int
		}{{"", http.StatusNotFound}, {door, http.StatusOK}} {
			assert.NilError(t, os.WriteFile(b.ConfigFile(), []byte(strings.Replace(string(text), door, step.block, 1)), 0o600))
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				answer := b.DoWith(http.MethodPost, "/mcp", harness.Token, []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`),
					map[string]string{"Accept": "application/json, text/event-stream"})
				if answer.Status != step.status {
					return poll.Continue("%d %s", answer.Status, answer.Body)
				}
				return poll.Success()
			}, poll.WithTimeout(time.Minute))
		}
	})
}

// withToken is a proxy that adds a token: the suite has no option for one. The name that its
// client uses is passed on, as the suite tries names that lead to this machine.
func withToken(t *testing.T, address string) string {
	t.Helper()
	broker, err := url.Parse(address)
	assert.NilError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(broker)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", "Bearer "+harness.Token)
		},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // the suite leaves streams as it likes
		Transport:     &http.Transport{DisableKeepAlives: true},
	})
	t.Cleanup(proxy.Close)
	return proxy.URL
}
