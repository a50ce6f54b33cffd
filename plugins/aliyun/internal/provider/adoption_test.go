package provider_test

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// of makes the provider of a broker. Settings of its own have all but the broker a.
func of(t *testing.T, cloud *aliyunfake.Cloud, brokerID, stateDir string) *provider.Provider {
	t.Helper()
	p := provider.New(hclog.NewNullLogger()).(*provider.Provider)
	values := given(cloud)
	if brokerID != "a" {
		values["idle_timeout"] = "1h"
	}
	settings, problems := p.Describe().Schema.Resolve(values)
	assert.Equal(t, len(problems), 0, "%v", problems)
	t.Cleanup(func() { assert.Check(t, p.Close(context.Background())) })
	assert.NilError(t, p.Configure(t.Context(), sdk.ConfigureRequest{Label: "aliyun", BrokerID: brokerID, StateDir: stateDir, Settings: settings}))
	return p
}

// has are the IDs of a list.
func has(t *testing.T, list func(context.Context) ([]sdk.Instance, error)) []string {
	t.Helper()
	all, err := list(t.Context())
	assert.NilError(t, err)
	ids := []string{}
	for _, one := range all {
		ids = append(ids, one.ID)
	}
	return ids
}

// listOf is ListOf for a broker.
func listOf(p *provider.Provider, brokerID string) func(context.Context) ([]sdk.Instance, error) {
	return func(ctx context.Context) ([]sdk.Instance, error) { return p.ListOf(ctx, brokerID) }
}

const whose = "import os\nprint(open('file').read(), os.environ.get('WHOSE'))"

// madeByA is a sandbox of the broker a, with a file and a variable.
func madeByA(t *testing.T, a *provider.Provider) string {
	t.Helper()
	made, err := a.Create(t.Context(), sdk.CreateRequest{
		Template: "python", Labels: map[string]string{sdk.LabelBroker: "a", sdk.LabelInstance: "i"}, Env: map[string]string{"WHOSE": "it's \"ä\"\n"},
	})
	assert.NilError(t, err)
	_, _, err = run(t, a, made.ID, "open('file', 'w').write('kept')")
	assert.NilError(t, err)
	return made.ID
}

func TestAnotherBrokerGoesOnWithASandbox(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]aliyunfake.Options{"as root": {}, "as an ordinary user": {User: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := startWith(t, options)
			a, dirOfB := of(t, cloud, "a", t.TempDir()), t.TempDir()
			b, c := of(t, cloud, "b", dirOfB), of(t, cloud, "c", t.TempDir())
			id := madeByA(t, a)
			command, err := a.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"sleep", "600"}, KeepOutput: 1 << 10})
			assert.NilError(t, err)
			assert.DeepEqual(t, has(t, listOf(b, "a")), []string{id})
			assert.DeepEqual(t, has(t, listOf(b, "c")), []string{})
			assert.DeepEqual(t, has(t, b.List), []string{})

			assert.NilError(t, b.Adopt(t.Context(), id, "a"))
			assert.NilError(t, b.Adopt(t.Context(), id, "a"))
			listed, err := b.List(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(listed), 1)
			assert.DeepEqual(t, listed[0].Labels, map[string]string{sdk.LabelBroker: "b"})
			assert.Equal(t, b.IdleOf(id), 10*time.Minute, "as the service was told")
			assert.Check(t, time.Until(listed[0].ExpiresAt) > 5*time.Hour && time.Until(listed[0].ExpiresAt) <= 6*time.Hour, "%v", listed[0].ExpiresAt)
			_, printed, err := run(t, b, id, whose)
			assert.NilError(t, err)
			assert.Equal(t, printed, "kept it's \"ä\"\n\n")
			running, err := b.ListCommands(t.Context(), id)
			assert.NilError(t, err)
			assert.Equal(t, len(running), 1)
			assert.Equal(t, running[0].ID, command.ID)

			// The former owner is told, which leaves it alone from then on.
			assert.NilError(t, a.Release(t.Context(), id))
			assert.NilError(t, a.Release(t.Context(), "unknown"))
			assert.DeepEqual(t, has(t, a.List), []string{})
			_, _, err = run(t, a, id, whose)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound, "%v", err)
			assert.NilError(t, a.Destroy(t.Context(), id))
			assert.DeepEqual(t, cloud.Living(), []string{id})

			// The next process of the new owner is told again, and the next owner finds it under
			// the ID of the first.
			assert.NilError(t, b.Close(t.Context()))
			next := of(t, cloud, "b", dirOfB)
			assert.DeepEqual(t, has(t, next.List), []string{})
			_, _, err = run(t, next, id, whose)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound, "%v", err)
			assert.NilError(t, next.Adopt(t.Context(), id, "a"))
			_, printed, err = run(t, next, id, whose)
			assert.NilError(t, err)
			assert.Equal(t, printed, "kept it's \"ä\"\n\n")
			assert.NilError(t, c.Adopt(t.Context(), id, "a"))
			assert.NilError(t, next.Release(t.Context(), id))
			assert.DeepEqual(t, has(t, next.List), []string{})
			assert.NilError(t, next.Destroy(t.Context(), id))
			assert.DeepEqual(t, cloud.Living(), []string{id})

			// The first one gets it back, although it has forgotten all of it.
			assert.NilError(t, c.Release(t.Context(), id))
			assert.NilError(t, a.Adopt(t.Context(), id, "a"))
			assert.DeepEqual(t, has(t, a.List), []string{id})
			_, printed, err = run(t, a, id, whose)
			assert.NilError(t, err)
			assert.Equal(t, printed, "kept it's \"ä\"\n\n")
			assert.NilError(t, a.Destroy(t.Context(), id))
			assert.DeepEqual(t, cloud.Living(), []string(nil))
		})
	}
}

func TestOnlyWhatIsThereIsAdopted(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	a, b := of(t, cloud, "a", t.TempDir()), of(t, cloud, "b", t.TempDir())
	id, ended := madeByA(t, a), madeByA(t, a)
	cloud.End(ended)
	assert.DeepEqual(t, has(t, listOf(b, "a")), []string{id})
	for _, test := range []struct{ id, broker string }{
		{ended, "a"}, {id, "c"}, {id, "b"}, {id[:len(id)-1], "a"}, {"../" + id, "a"}, {"", "a"}, {a.NameOf("never made"), "a"},
	} {
		err := b.Adopt(t.Context(), test.id, test.broker)
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound, "%+v: %v", test, err)
	}
	cloud.Fault(aliyunfake.Fault{Action: "GetSandbox", Times: 99, Status: 502, Body: gateway})
	err := b.Adopt(t.Context(), id, "a")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
	cloud.Mend()
	assert.DeepEqual(t, has(t, b.List), []string{})
	cloud.Fault(aliyunfake.Fault{Action: "ListSandboxes", Times: 99, Status: 502, Body: gateway})
	_, err = b.ListOf(t.Context(), "a")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
	cloud.Mend()
	assert.NilError(t, b.Destroy(t.Context(), id), "its broker knows what it has")
	assert.Equal(t, cloud.Sandboxes(), 0)
}

func TestAPausedSandboxIsAdoptedAsItIs(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	a, b := of(t, cloud, "a", t.TempDir()), of(t, cloud, "b", t.TempDir())
	id := madeByA(t, a)
	assert.NilError(t, a.Pause(t.Context(), id))
	asked := cloud.Calls("Health") + cloud.Calls("Command")
	assert.DeepEqual(t, has(t, listOf(b, "a")), []string{id})
	assert.NilError(t, b.Adopt(t.Context(), id, "a"))
	assert.DeepEqual(t, has(t, b.List), []string{id})
	assert.Equal(t, cloud.Calls("Health")+cloud.Calls("Command"), asked, "nobody asks it for anything")
	assert.NilError(t, b.Resume(t.Context(), id))
	_, printed, err := run(t, b, id, whose)
	assert.NilError(t, err)
	assert.Equal(t, printed, "kept it's \"ä\"\n\n")
}

// What is kept in a sandbox is its code's to spoil, for itself.
func TestCodeMaySpoilWhatIsKeptOfItsEnvironment(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	a, b := of(t, cloud, "a", t.TempDir()), of(t, cloud, "b", t.TempDir())
	removed, overwritten := madeByA(t, a), madeByA(t, a)
	_, _, err := run(t, a, removed, "import os\nos.remove('/tmp/.sandbox-broker/note.json')")
	assert.NilError(t, err)
	_, _, err = run(t, a, overwritten, "open('/tmp/.sandbox-broker/note.json', 'w').write('?')")
	assert.NilError(t, err)
	_, printed, err := run(t, a, overwritten, whose)
	assert.NilError(t, err)
	assert.Equal(t, printed, "kept it's \"ä\"\n\n", "its own broker has a record")
	for _, id := range []string{removed, overwritten} {
		assert.NilError(t, b.Adopt(t.Context(), id, "a"))
	}
	_, printed, err = run(t, b, removed, whose)
	assert.NilError(t, err)
	assert.Equal(t, printed, "kept None\n")
	_, _, err = run(t, b, overwritten, whose)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
	assert.Check(t, is.ErrorContains(err, "code in the sandbox has overwritten"))
	assert.NilError(t, b.Destroy(t.Context(), overwritten))
}

// A broker that has lost its lease makes and ends nothing. What runs is watched to its end.
func TestNothingIsMadeOrEndedWithoutTheLease(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	a := of(t, cloud, "a", t.TempDir())
	id := madeByA(t, a)
	lease := &sdk.Lease{}
	lease.Extend(1, 0)
	ctx := sdk.WithLease(t.Context(), lease)
	refused := func(err error) {
		t.Helper()
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
		assert.Check(t, knownToBeWithoutEffect(err), "%v", err)
	}
	made := cloud.Calls("CreateSandbox")
	_, err := a.Create(ctx, sdk.CreateRequest{Template: "python", IdempotencyKey: "k"})
	refused(err)
	refused(a.Destroy(ctx, id))
	refused(a.Pause(ctx, id))
	assert.Equal(t, cloud.Calls("CreateSandbox"), made)
	assert.Equal(t, cloud.Calls("DeleteSandbox")+cloud.Calls("PauseSandbox"), 0)
	assert.DeepEqual(t, has(t, a.List), []string{id})

	var out heard
	result, err := a.Execute(ctx, sdk.ExecuteRequest{InstanceID: id, ExecutionID: "x", Language: sdk.Python, Code: whose, Timeout: time.Minute, OutputLimit: 1 << 20}, &out)
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusSucceeded)
	assert.Equal(t, out.stdout.String(), "kept it's \"ä\"\n\n")
}
