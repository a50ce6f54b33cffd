package provider_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// process starts a provider with its state in a directory.
func process(t *testing.T, server *e2bfake.Server, dir string, abandoned ...string) *provider.Provider {
	t.Helper()
	p := provider.NewImpatient(hclog.NewNullLogger()).(*provider.Provider)
	settings, mistakes := p.Describe().Schema.Resolve(map[string]any{
		"api_key": e2bfake.DefaultAPIKey, "domain": server.Domain,
	})
	assert.Equal(t, len(mistakes), 0, "%v", mistakes)
	assert.NilError(t, p.Configure(t.Context(), sdk.ConfigureRequest{
		Label: "e2b", BrokerID: "b", StateDir: dir, AbandonedDirs: abandoned, Settings: settings,
	}))
	return p
}

func TestANewProcessFindsTheContexts(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	dir, next := t.TempDir(), t.TempDir()
	before := process(t, server, dir)
	id, other := create(t, before), create(t, before)
	contextIn := func(id string, language sdk.Language, env map[string]string) sdk.CodeContext {
		t.Helper()
		made, err := before.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: language, Cwd: "/tmp", Env: env})
		assert.NilError(t, err)
		return made
	}
	made := contextIn(id, sdk.Python, map[string]string{"A": "it's"})
	typed := contextIn(id, sdk.TypeScript, nil)
	deleted := contextIn(id, sdk.Python, nil)
	lost := contextIn(other, sdk.Python, nil)
	run := func(p *provider.Provider, code string) string {
		t.Helper()
		req := request(id, sdk.Python, code)
		req.ContextID = made.ID
		var out heard
		result, err := p.Execute(t.Context(), req, &out)
		assert.NilError(t, err)
		assert.Equal(t, result.Status, sdk.StatusSucceeded, "%s", out.stderr.String())
		return out.out()
	}
	run(before, "x = 5")
	assert.NilError(t, before.DeleteContext(t.Context(), id, deleted.ID))
	assert.NilError(t, before.Close(t.Context()))

	after := process(t, server, next, dir)
	defer func() { assert.Check(t, after.Close(t.Context())) }()
	assert.NilError(t, os.RemoveAll(dir))
	assert.Equal(t, run(after, "import os; print(x, os.environ['A'], os.getcwd())"), "5 it's /tmp\n")
	list, err := after.ListContexts(t.Context(), id)
	assert.NilError(t, err)
	assert.Equal(t, len(list), 2)
	for i, want := range []sdk.CodeContext{made, typed} {
		assert.Assert(t, list[i].CreatedAt.Equal(want.CreatedAt))
		list[i].CreatedAt = want.CreatedAt
		assert.DeepEqual(t, list[i], want)
	}
	assert.NilError(t, after.RestartContext(t.Context(), id, made.ID))
	assert.Equal(t, run(after, "import os; print('x' in globals(), os.environ['A'])"), "False it's\n", "a new kernel gets its environment")

	// A kernel that the code interpreter does not have any more is no context.
	inject(server, []string{"GET /contexts"}, e2bfake.Fault{Status: 200, Body: `[{"id":"default","language":"python","cwd":"/home/user"}]`}, 1)
	list, err = after.ListContexts(t.Context(), other)
	assert.NilError(t, err)
	assert.Equal(t, len(list), 0)
	assert.NilError(t, after.DeleteContext(t.Context(), other, lost.ID), "it is gone already")
}

func TestContextsAreLookedForAgainWhenTheListFails(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	dir := t.TempDir()
	before := process(t, server, dir)
	id := create(t, before)
	made, err := before.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	assert.NilError(t, before.Close(t.Context()))
	after := process(t, server, dir)
	defer func() { assert.Check(t, after.Close(t.Context())) }()
	inject(server, []string{"GET /contexts"}, e2bfake.Fault{Status: 500, Body: "x"}, 1)
	_, err = after.ListContexts(t.Context(), id)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
	list, err := after.ListContexts(t.Context(), id)
	assert.NilError(t, err)
	assert.Equal(t, len(list), 1)
	assert.Equal(t, list[0].ID, made.ID)
}

func TestNothingIsLeftWrittenDownOfASandboxThatIsGone(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	dir := t.TempDir()
	written := func() int {
		t.Helper()
		files, err := os.ReadDir(filepath.Join(dir, "contexts"))
		assert.NilError(t, err)
		return len(files)
	}
	before := process(t, server, dir)
	for _, end := range []func(id string){
		func(id string) { assert.NilError(t, before.Destroy(t.Context(), id)) },
		func(id string) {
			server.Expire(id)
			assert.NilError(t, before.Close(t.Context()))
			assert.Check(t, process(t, server, dir).Close(t.Context()))
		},
	} {
		id := create(t, before)
		_, err := before.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
		assert.NilError(t, err)
		assert.Equal(t, written(), 1)
		end(id)
		assert.Equal(t, written(), 0)
	}
}
