package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/packageindex"
)

// withPackages runs a test on both runtimes, where packages come from an index.
func withPackages(t *testing.T, test func(t *testing.T, b *harness.Broker)) {
	index := packageindex.Start(t)
	index.AddWheel("greeting", "1.2", "def greet(name): return f'Hello {name}!'")
	startOnBothRuntimes(t, fmt.Sprintf("packages = \"on\"\n  package_index = %q", index.Simple()), test)
}

func TestPackagesAreInstalledWhereTheCodeNeedsThem(t *testing.T) {
	t.Parallel()
	withPackages(t, func(t *testing.T, b *harness.Broker) {
		uses := map[string]any{"language": "python", "code": "import greeting; print(greeting.greet('World'))", "requirements": []string{"greeting>=1"}}
		e := b.Execute(t, uses)
		assert.Check(t, is.Equal(e.Stdout, "Hello World!\n"), "%+v", e)
		assert.Check(t, is.Equal(e.Stderr, ""), "the installer's own words are not the code's")

		// An instance keeps what was installed; the next has none of it.
		uses["session_id"] = "s"
		e = b.Execute(t, uses)
		assert.Check(t, is.Equal(e.Stdout, "Hello World!\n"), "%+v", e)
		e = b.Execute(t, map[string]any{"session_id": "s", "language": "python", "code": "import greeting"})
		assert.Check(t, is.Equal(e.Status, "succeeded"), "%+v", e)
		e = b.Execute(t, map[string]any{"language": "python", "code": "import greeting"})
		assert.Check(t, is.Contains(e.Stderr, "ModuleNotFoundError"))

		// A failure has one form, whatever asked for the installation.
		failed := func(e harness.Execution) {
			t.Helper()
			assert.Check(t, is.Equal(e.Status, "failed"))
			assert.Check(t, e.ExitCode != 0)
			assert.Check(t, strings.HasPrefix(e.Stderr, "Failed to install requirements: ERROR: Could not find a version that satisfies the requirement nonexistent-package"), e.Stderr)
		}
		e = b.Execute(t, map[string]any{"language": "python", "code": "print('ran')", "requirements": []string{"nonexistent-package"}})
		failed(e)
		assert.Check(t, is.Equal(e.Stdout, ""))

		var made live
		answer := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"language": "python", "requirements": []string{"greeting"}})
		assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
		answer.Into(t, &made)
		path := "/api/v1/instances/" + made.ID
		b.Do(http.MethodPost, path+"/execute", harness.Token, map[string]any{"language": "python", "code": "import greeting"}).Into(t, &e)
		assert.Check(t, is.Equal(e.Status, "succeeded"), "%+v", e)
		b.Do(http.MethodPost, path+"/packages", harness.Token, map[string]any{"language": "python", "requirements": []string{"nonexistent-package"}}).Into(t, &e)
		failed(e)
		b.Do(http.MethodPost, path+"/packages", harness.Token, map[string]any{"language": "python", "requirements": []string{"greeting==1.2"}}).Into(t, &e)
		assert.Check(t, is.Equal(e.Status, "succeeded"), "%+v", e)
		assert.Check(t, is.Contains(e.Stdout, "Successfully installed greeting-1.2"))
		var c struct{ ID string }
		b.Do(http.MethodPost, path+"/contexts", harness.Token, map[string]any{"language": "python"}).Into(t, &c)
		b.Do(http.MethodPost, path+"/execute", harness.Token, map[string]any{"context_id": c.ID, "code": "import greeting; greeting.greet('context')", "requirements": []string{"greeting"}}).Into(t, &e)
		assert.Check(t, is.Equal(e.Status, "succeeded"), "a context has its language: %+v", e)
		unknown := b.Do(http.MethodPost, path+"/execute", harness.Token, map[string]any{"context_id": "none", "code": "1", "requirements": []string{"greeting"}})
		assert.Check(t, is.Equal(harness.Refused(t, unknown, http.StatusNotFound, "SB013").Field, "context_id"))
		p := harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"language": "python", "requirements": []string{"nonexistent-package"}}), http.StatusUnprocessableEntity, "SB010")
		assert.Check(t, is.Equal(p.Field, "requirements"))
		p = harness.Refused(t, b.Do(http.MethodPost, path+"/packages", harness.Token, map[string]any{"language": "python", "requirements": []string{"git+https://example.com/x"}}), http.StatusUnprocessableEntity, "SB010")
		assert.Check(t, is.Equal(p.Field, "requirements"))
		assert.Check(t, is.Contains(b.Log(), "package tunnel"), "each use of the way out is logged")
	})
}

// The fourth seed's workflow over several executions.
func TestAWorkflowFindsItsFilesAndNotItsVariables(t *testing.T) {
	t.Parallel()
	withPackages(t, func(t *testing.T, b *harness.Broker) {
		run := func(code string, requirements ...string) harness.Execution {
			t.Helper()
			return b.Execute(t, map[string]any{"session_id": "w", "language": "python", "code": code, "requirements": requirements})
		}
		e := run("import json\ndata = {'users': ['alice', 'bob', 'charlie'], 'count': 3}\nwith open('/workspace/users.json', 'w') as f:\n    json.dump(data, f)\nprint('Data saved successfully')")
		assert.Check(t, is.Equal(e.Stdout, "Data saved successfully\n"), "%+v", e)
		e = run("import json, greeting\nfor user in json.load(open('/workspace/users.json'))['users']: print(greeting.greet(user))", "greeting")
		assert.Check(t, is.Equal(e.Stdout, "Hello alice!\nHello bob!\nHello charlie!\n"), "%+v", e)
		e = run("print(data)")
		assert.Check(t, is.Contains(e.Stderr, "NameError"))
		e = run("print(json.dumps({}))", "greeting")
		assert.Check(t, is.Contains(e.Stderr, "NameError"))
	})
}

func TestPackagesAreOffUnlessTheOperatorTurnsThemOn(t *testing.T) {
	t.Parallel()
	b := startReal(t, "")
	for path, request := range map[string]map[string]any{
		"/api/v1/execute":   {"session_id": "off", "language": "python", "code": "1", "requirements": []string{"numpy"}},
		"/api/v1/instances": {"session_id": "off", "language": "python", "requirements": []string{"numpy"}},
	} {
		p := harness.Refused(t, b.Do(http.MethodPost, path, harness.Token, request), http.StatusNotImplemented, "SB015")
		assert.Check(t, is.Contains(p.Detail, `packages = "on"`))
		assert.Check(t, is.Equal(p.InstanceID, ""), "nothing is made for it")
	}
	var list struct{ Instances []live }
	b.Do(http.MethodGet, "/api/v1/instances", harness.Token, nil).Into(t, &list)
	assert.Check(t, is.Len(list.Instances, 0))
}

func TestAProviderWithoutPackagesSaysSo(t *testing.T) {
	t.Parallel()
	b := mock.Broker(t)
	p := harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "python", "code": "1", "requirements": []string{"numpy"}}), http.StatusNotImplemented, "SB015")
	assert.Check(t, is.Contains(p.Detail, "packages"))
	assert.Check(t, is.Contains(p.Detail, "mock"))
}
