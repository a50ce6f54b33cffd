package provider_test

import (
	"errors"
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAnExecutionInAContextThatIsCutOffIsEndedAndTheContextGoesOn(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python, Env: map[string]string{"A": "b"}})
	assert.NilError(t, err)
	in := func(code string) sdk.ExecuteRequest {
		req := request(id, sdk.Python, code)
		req.ContextID = made.ID
		return req
	}
	for _, at := range []int{0, 1, 20, 60, 200, 1000} {
		t.Run(fmt.Sprintf("after %d bytes", at), func(t *testing.T) {
			inject(server, []string{"POST /execute"}, e2bfake.Fault{CutAt: e2bfake.Bytes(at)}, 1)
			_, err := p.Execute(t.Context(), in("for i in range(100): print(i)\nimport time; time.sleep(98765)"), &heard{})
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
			var out heard
			result, err := p.Execute(t.Context(), in("import os; print(os.environ['A'])"), &out)
			assert.NilError(t, err)
			assert.Equal(t, result.Status, sdk.StatusSucceeded, "%s", out.stderr.String())
			assert.Equal(t, out.out(), "b\n")
		})
	}
}

func TestATemplateWithoutACodeInterpreterHasNoContexts(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, map[string]any{"template": e2bfake.BaseTemplate})
	id := create(t, p)
	assert.Equal(t, bash(t, p, id, "echo hello"), "hello\n")
	_, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
}

func TestOtherLanguagesRunInAKernelOfTheirOwn(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	var out heard
	result, err := p.Execute(t.Context(), request(id, sdk.TypeScript, "console.log('hello')"), &out)
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusSucceeded)
	assert.Equal(t, out.out(), "hello\n")
	list, err := p.ListContexts(t.Context(), id)
	assert.NilError(t, err)
	assert.Equal(t, len(list), 0)
	_, err = p.Execute(t.Context(), request(id, sdk.R, "1"), &out)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
}

func TestTypeScriptTakesArgumentsAndAnEnvironmentAndOthersDoNot(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	req := request(id, sdk.TypeScript, "async function main(a) { return { sum: a.x + a.y, from: process.env.FROM }; }")
	req.Arguments, req.Env = []byte(`{"x": 1, "y": 2}`), map[string]string{"FROM": "it's `here`"}
	result, err := p.Execute(t.Context(), req, &heard{})
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusSucceeded, "%s", result.Detail)
	assert.Equal(t, string(result.Result), "{\"sum\":3,\"from\":\"it's `here`\"}")
	for field, given := range map[string]func(*sdk.ExecuteRequest){
		"arguments": func(req *sdk.ExecuteRequest) { req.Arguments = []byte("{}") },
		"env":       func(req *sdk.ExecuteRequest) { req.Env = map[string]string{"A": "b"} },
	} {
		for _, language := range []sdk.Language{sdk.R, sdk.Java} {
			req := request(id, language, "1")
			given(&req)
			_, err := p.Execute(t.Context(), req, &heard{})
			e, ok := errors.AsType[*sdk.Error](err)
			assert.Assert(t, ok && e.Code == sdk.CodeInvalidRequest && e.Field == field, "%s, %s: %v", language, field, err)
		}
	}
}
