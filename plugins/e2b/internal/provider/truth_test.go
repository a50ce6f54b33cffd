package provider_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A page of a balancer, which knows nothing of sandboxes.
var page = e2bfake.Fault{Status: 404, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html><h1>404 Not Found</h1></html>"}

func TestThePageOfABalancerEndsNothing(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, map[string]any{"timeout": "60s", "max_retries": int64(0)})
	id := create(t, p)
	made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	inject(server, []string{"POST /sandboxes/*/timeout", "POST /sandboxes/*/pause", "POST /sandboxes/*/connect", "POST /v2/sandboxes/*/connect", "DELETE /sandboxes/*", "POST /contexts/*/restart", "DELETE /contexts/*", "POST /execute"}, page, 0)
	p.BelieveLeft(id, 30*time.Second)
	server.Shorten(id, 30*time.Second)
	_, err = p.SetTTL(t.Context(), id, time.Hour)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
	assert.ErrorIs(t, p.Pause(t.Context(), id), &sdk.Error{Code: sdk.CodeUnavailable})
	assert.ErrorIs(t, p.Resume(t.Context(), id), &sdk.Error{Code: sdk.CodeUnavailable})
	assert.ErrorIs(t, p.Destroy(t.Context(), id), &sdk.Error{Code: sdk.CodeUnavailable})
	assert.ErrorIs(t, p.RestartContext(t.Context(), id, made.ID), &sdk.Error{Code: sdk.CodeUnavailable})
	req := request(id, sdk.Python, "1")
	req.ContextID = made.ID
	_, err = p.Execute(t.Context(), req, &heard{})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
	assert.Check(t, p.Knows(id))
	server.Honest()
	_, err = p.Execute(t.Context(), req, &heard{})
	assert.NilError(t, err)

	// The API itself is believed when it says so twice.
	known := e2bfake.Fault{Status: 404, Body: problem(404, "")}
	inject(server, []string{"POST /sandboxes/*/timeout"}, known, 1)
	_, err = p.SetTTL(t.Context(), id, time.Hour)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
	assert.Check(t, p.Knows(id))
	inject(server, []string{"POST /sandboxes/*/timeout", "GET /sandboxes/*"}, known, 1)
	_, err = p.SetTTL(t.Context(), id, time.Hour)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	assert.Check(t, !p.Knows(id))
}

func TestARenewalThatIsAnsweredByABalancerIsRepeated(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, map[string]any{"timeout": "60s"})
	id := create(t, p)
	inject(server, []string{"POST /sandboxes/*/timeout"}, page, 3)
	server.Shorten(id, 30*time.Second)
	p.BelieveLeft(id, 30*time.Second)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if left := server.Left(id); left < 50*time.Second {
			return poll.Continue("%v are left", left)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Check(t, p.Knows(id))
}

func TestACodeInterpreterInTroubleIsNotOneWithoutAKernel(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	start := func(language sdk.Language) error {
		_, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: language})
		return err
	}
	for _, text := range []string{"All connection attempts failed", ""} {
		down := e2bfake.Fault{Status: 500, Body: text}
		inject(server, []string{"POST /contexts"}, down, 1)
		assert.NilError(t, start(sdk.Python), "the second try")
		inject(server, []string{"POST /contexts"}, down, 0)
		assert.ErrorIs(t, start(sdk.Python), &sdk.Error{Code: sdk.CodeUnavailable})
		server.Honest()
	}
	assert.ErrorIs(t, start(sdk.Java), &sdk.Error{Code: sdk.CodeNotSupported})
}

func TestContextsThatTheCodeInterpreterHasLostAreForgotten(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	inject(server, []string{"POST /execute"}, e2bfake.Fault{Status: 404, Body: "Context " + made.ID + " not found"}, 1)
	req := request(id, sdk.Python, "1")
	req.ContextID = made.ID
	_, err = p.Execute(t.Context(), req, &heard{})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	list, err := p.ListContexts(t.Context(), id)
	assert.NilError(t, err)
	assert.Check(t, is.Len(list, 0))
}

func TestWhatASandboxCanDoFollowsFromItsVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.2.10", "0.4.2", "0.5.2", "0.5.7", "0.6.13"} {
		t.Run(version, func(t *testing.T) {
			server := cloud(t, e2bfake.Options{EnvdVersion: version})
			p := configured(t, server, nil)
			id := create(t, p)
			assert.Equal(t, bash(t, p, id, "whoami >/dev/null 2>&1; echo $USER; cat"), "user\n")
			content := bytes.Repeat([]byte("line\r\n--x\r\n"), 100_000)
			_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: "f"}, bytes.NewReader(content))
			assert.NilError(t, err)
			assert.Equal(t, strings.TrimSpace(bash(t, p, id, "stat -c %s f")), fmt.Sprint(len(content)))
			long := strings.Repeat("# "+strings.Repeat("0a1b2c3d", 20)+"\n", 10_000)
			var out heard
			result, err := p.Execute(t.Context(), request(id, sdk.Python, long+"print('hello')"), &out)
			assert.NilError(t, err)
			assert.Equal(t, result.Status, sdk.StatusSucceeded)
			made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
			assert.NilError(t, err)
			_, heard := inContext(t, p, made, id, "print('hello')")
			assert.Equal(t, heard.out(), "hello\n")
			c, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"cat"}, Stdin: true, KeepOutput: 100})
			assert.NilError(t, err)
			assert.NilError(t, p.WriteCommand(t.Context(), id, c.ID, []byte("hello"), false))
			err = p.WriteCommand(t.Context(), id, c.ID, nil, true)
			if version < "0.5.2" {
				assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
				assert.ErrorContains(t, err, version)
				assert.NilError(t, p.SignalCommand(t.Context(), id, c.ID, "SIGKILL"))
				return
			}
			assert.NilError(t, err)
		})
	}
}

func TestATemplateThatIsTooOldIsToldAtTheFirstCreation(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{EnvdVersion: "0.1.5"})
	p := configured(t, server, nil)
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidConfig})
	assert.ErrorContains(t, err, "0.1.5")
	assert.Check(t, is.Len(server.Sandboxes(), 0))
}

func TestAMissingTemplateIsToldByTheAnswerThatKnows(t *testing.T) {
	t.Parallel()
	for name, routes := range map[string]e2bfake.Routes{"both": e2bfake.AllRoutes, "the old": e2bfake.OldRoutes, "the new": e2bfake.NewRoutes} {
		t.Run(name, func(t *testing.T) {
			p := configured(t, cloud(t, e2bfake.Options{Routes: routes}), map[string]any{"template": "no-such-template"})
			_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidConfig})
			assert.ErrorContains(t, err, "template 'no-such-template' not found")
		})
	}
}

func TestACreationWhoseAnswerNamesNoSandboxIsLookedFor(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	for _, body := range []string{"{}", "null"} {
		p := configured(t, server, map[string]any{"max_retries": int64(0)})
		inject(server, []string{"POST /sandboxes"}, e2bfake.Fault{Status: 201, Body: body, After: true}, 1)
		id := create(t, p)
		assert.DeepEqual(t, server.Sandboxes(), []string{id})
		assert.NilError(t, p.Destroy(t.Context(), id))
	}
}

func TestPatternsStandForFilesThatCodeHasMade(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	const code = `
import os
os.makedirs("deep/er", exist_ok=True)
for name in ("a.txt", "b.txt", "c.csv", "deep/b.txt", "deep/er/b.txt"):
    open(name, "w").write(name)
`
	for _, contextID := range []string{"", made.ID} {
		req := request(id, sdk.Python, code)
		req.ContextID = contextID
		req.Artifacts = &sdk.ArtifactLimits{Files: []string{"c.csv", "*.txt", "**/b.txt", "*.png"}, MaxCount: 10, MaxBytes: 100, MaxTotalBytes: 1000}
		var out heard
		_, err := p.Execute(t.Context(), req, &out)
		assert.NilError(t, err)
		got := map[string]string{}
		for _, a := range out.artifacts {
			got[a.Name] = string(a.Data) + a.Refused
		}
		assert.DeepEqual(t, got, map[string]string{
			"a.txt": "a.txt", "b.txt": "b.txt", "deep/b.txt": "deep/b.txt", "deep/er/b.txt": "deep/er/b.txt", "c.csv": "c.csv", "*.png": "matches no file",
		})
	}
}

func TestTheCellThatCallsMainIsNotShown(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), nil)
	id := create(t, p)
	for language, code := range map[sdk.Language]string{sdk.Python: "x = 1", sdk.JavaScript: "var x = 1"} {
		made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: language})
		assert.NilError(t, err)
		req := request(id, language, code)
		req.ContextID, req.Arguments = made.ID, []byte("{}")
		var out heard
		result, err := p.Execute(t.Context(), req, &out)
		assert.NilError(t, err)
		assert.Equal(t, result.Status, sdk.StatusFailed)
		assert.Check(t, is.Contains(out.stderr.String(), "define a function main"), "%s: %+v %s", language, result, out.out())
		assert.Check(t, !strings.Contains(out.stderr.String(), "base64"), "%s", out.stderr.String())
	}
}
