package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// Variables reach the code and nothing else: no listing, no error, no log.
func TestEnvironmentVariablesShowNowhere(t *testing.T) {
	t.Parallel()
	const ofInstance, ofContext, ofExecution = "canary-of-the-instance", "canary-of-the-context", "canary-of-the-execution"
	b := real.Broker(t)
	var said []string
	do := func(method, path string, body any) harness.Answer {
		t.Helper()
		answer := b.Do(method, path, harness.Token, body)
		assert.NilError(t, answer.Err)
		said = append(said, string(answer.Body))
		return answer
	}
	var made struct{ ID string }
	do(http.MethodPost, "/api/v1/instances", map[string]any{"session_id": "with-variables", "language": "python", "env": map[string]string{"A": ofInstance}}).Into(t, &made)
	instance := "/api/v1/instances/" + made.ID
	do(http.MethodPost, instance+"/contexts", map[string]any{"language": "python", "env": map[string]string{"B": ofContext}}).Into(t, &made)
	context := made.ID

	// They arrive,
	code := "import os; print(*[os.environ.get(n, '').startswith('canary-of') for n in 'ABC'])"
	env := map[string]string{"C": ofExecution}
	for want, body := range map[string]map[string]any{
		"True False True\n": {"language": "python", "code": code, "env": env},
		"True True True\n":  {"context_id": context, "code": code, "env": env},
	} {
		var e harness.Execution
		do(http.MethodPost, instance+"/execute", body).Into(t, &e)
		assert.Equal(t, e.Stdout, want)
	}
	// and are in nothing that is said about it, whatever goes wrong.
	for _, body := range []map[string]any{
		{"language": "python", "code": "1/0", "env": env},
		{"language": "python", "code": "while True: pass", "timeout": 0.2, "env": env},
		{"context_id": context, "code": "1/0", "env": env},
		{"context_id": context, "code": "import os; os._exit(1)", "env": env},
		{"context_id": "unknown", "code": "1", "env": env},
		{"language": "cobol", "code": "1", "env": env},
		{"language": "python", "code": "1", "env": map[string]string{"bad name": ofExecution}},
		{"language": "python", "code": "1", "env": map[string]string{"C": ofExecution + "\x00"}},
		{"language": "python", "code": "1", "env": map[string]any{"C": []string{ofExecution}}},
	} {
		do(http.MethodPost, instance+"/execute", body)
	}
	do(http.MethodPost, instance+"/contexts", map[string]any{"language": "python", "cwd": "none", "env": map[string]string{"B": ofContext}})
	for _, path := range []string{"/api/v1/instances", instance, instance + "/contexts", instance + "/contexts/" + context, "/api/v1/providers"} {
		do(http.MethodGet, path, nil)
	}
	do(http.MethodDelete, instance, nil)
	said = append(said, b.Log())
	for _, text := range said {
		for _, canary := range []string{ofInstance, ofContext, ofExecution} {
			assert.Check(t, is.Equal(strings.Count(text, canary), 0), text)
		}
	}
}
