package provider_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func tenantKey() []byte { return bytes.Repeat([]byte("k"), sdk.SnapshotKeyBytes) }

func keeping(id, key string) sdk.SnapshotRequest {
	return sdk.SnapshotRequest{
		InstanceID: id, IdempotencyKey: key, Key: tenantKey(),
		Labels: map[string]string{sdk.LabelTenant: "t", sdk.LabelBroker: "b", sdk.LabelSnapshot: "snap-" + key},
	}
}

func keep(t *testing.T, p *provider.Provider, id string) sdk.Snapshot {
	t.Helper()
	made, err := p.Snapshot(t.Context(), keeping(id, rand.Text()))
	assert.NilError(t, err)
	return made
}

func copying(of sdk.Snapshot) sdk.CreateRequest {
	return sdk.CreateRequest{IdempotencyKey: rand.Text(), TTL: time.Hour, Snapshot: &sdk.SnapshotSource{ID: of.ID, Key: tenantKey()}}
}

func copyOf(t *testing.T, p *provider.Provider, of sdk.Snapshot) string {
	t.Helper()
	made, err := p.Create(t.Context(), copying(of))
	assert.NilError(t, err)
	return made.ID
}

func listedSnapshots(t *testing.T, p *provider.Provider) []sdk.Snapshot {
	t.Helper()
	list, err := p.ListSnapshots(t.Context())
	assert.NilError(t, err)
	return list
}

func TestASnapshotWhoseAnswerIsLostIsFoundByItsName(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, map[string]any{"max_retries": int64(1)})
	id := create(t, p)
	for name, f := range map[string]e2bfake.Fault{
		"no answer":                   {Reset: true, After: true},
		"504 of a balancer":           {Status: 504, Body: "upstream request timeout", After: true},
		"500":                         {Status: 500, Body: problem(500, ""), After: true},
		"half an answer":              {CutAt: e2bfake.Bytes(10)},
		"a page instead of an answer": {Status: 200, Body: "<html></html>", After: true},
		"503, and nothing was kept":   {Status: 503, Body: problem(503, "")},
		"429 with a time":             {Status: 429, Header: map[string]string{"Retry-After": "1"}, Body: problem(429, "")},
	} {
		t.Run(name, func(t *testing.T) {
			inject(server, []string{"POST /sandboxes/*/snapshots"}, f, 1)
			made := keep(t, p, id)
			assert.DeepEqual(t, server.Snapshots(), []string{made.ID})
			bash(t, p, copyOf(t, p, made), "true")
			assert.NilError(t, p.DeleteSnapshot(t.Context(), made.ID))
			assert.Equal(t, len(listedSnapshots(t, p)), 0)
			assert.NilError(t, endAll(t, p, id))
			poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Len(server.Snapshots(), 0)) }, poll.WithTimeout(2*time.Minute))
		})
	}
}

// endAll ends all sandboxes but one.
func endAll(t *testing.T, p *provider.Provider, but string) error {
	t.Helper()
	all, err := p.List(t.Context())
	for _, one := range all {
		if one.ID != but {
			err = errors.Join(err, p.Destroy(t.Context(), one.ID))
		}
	}
	return err
}

func TestASnapshotOfWhichNobodyKnowsWhetherItIsThereIsTheNextProcesses(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	dir := t.TempDir()
	before := process(t, server, dir)
	id := create(t, before)
	bash(t, before, id, "echo kept >/tmp/file")
	server.HideSnapshots(100)
	inject(server, []string{"POST /sandboxes/*/snapshots"}, e2bfake.Fault{Reset: true, After: true}, 1)
	inject(server, []string{"POST /sandboxes/*/snapshots"}, e2bfake.Fault{Status: 401, Body: problem(401, "")}, 1)
	req := keeping(id, "key")
	_, err := before.Snapshot(t.Context(), req)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
	assert.Check(t, !knownToBeWithoutEffect(err))
	assert.Equal(t, len(server.Snapshots()), 1)
	assert.NilError(t, before.Close(t.Context()))

	server.HideSnapshots(0)
	after := process(t, server, dir)
	defer func() { assert.Check(t, after.Close(t.Context())) }()
	list := listedSnapshots(t, after)
	assert.Equal(t, len(list), 1)
	assert.DeepEqual(t, list[0].Labels, req.Labels)
	assert.Equal(t, bash(t, after, copyOf(t, after, list[0]), "cat /tmp/file"), "kept\n")
	again, err := after.Snapshot(t.Context(), req)
	assert.NilError(t, err)
	assert.DeepEqual(t, again, list[0])
	assert.Equal(t, len(server.Snapshots()), 1)
}

func TestARefusedSnapshotLeavesNothing(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	dir := t.TempDir()
	p := process(t, server, dir)
	defer func() { assert.Check(t, p.Close(context.Background())) }()
	id := create(t, p)
	for name, c := range map[string]struct {
		fault e2bfake.Fault
		times int
		code  sdk.Code
	}{
		"the cloud has no such call":       {e2bfake.Fault{Status: 404, Body: problem(404, "")}, 1, sdk.CodeNotSupported},
		"it does not do it":                {e2bfake.Fault{Status: 501, Body: problem(501, "")}, 1, sdk.CodeNotSupported},
		"envd is too old":                  {e2bfake.Fault{Status: 400, Body: problem(400, "")}, 1, sdk.CodeNotSupported},
		"there are too many":               {e2bfake.Fault{Status: 429, Body: problem(429, "")}, 1, sdk.CodeQuotaExceeded},
		"the key is not taken":             {e2bfake.Fault{Status: 403, Body: problem(403, "")}, 1, sdk.CodeInvalidConfig},
		"it is between states":             {e2bfake.Fault{Status: 409, Body: problem(409, "")}, 0, sdk.CodeConflict},
		"the cloud gives names of its own": {e2bfake.Fault{Status: 201, Body: `{"snapshotID":"abc:default","names":[]}`}, 1, sdk.CodeNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			inject(server, []string{"POST /sandboxes/*/snapshots"}, c.fault, c.times)
			defer server.Honest()
			_, err := p.Snapshot(t.Context(), keeping(id, name))
			e, ok := errors.AsType[*sdk.Error](err)
			assert.Assert(t, ok, "%v", err)
			assert.Equal(t, e.Code, c.code, "%v", err)
			if c.code == sdk.CodeNotSupported {
				assert.Equal(t, e.Capability, sdk.CapabilitySnapshots)
				assert.Check(t, e.NoEffect)
			}
			left, err := fs.Glob(os.DirFS(dir), "snapshots/*.json")
			assert.NilError(t, err)
			assert.Equal(t, len(left), 0, "a note is left")
		})
	}
}

func TestATemplateWithTooOldAnEnvdIsKeptByNobody(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{EnvdVersion: "0.4.2"}), nil)
	_, err := p.Snapshot(t.Context(), keeping(create(t, p), "k"))
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
	assert.Check(t, is.ErrorContains(err, "0.5.0"), "it says which is needed")
}

func TestACloudWithoutSnapshotsHasNone(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, map[string]any{"max_retries": int64(0)})
	inject(server, []string{"GET /snapshots"}, e2bfake.Fault{Status: 404, Body: problem(404, "")}, 1)
	assert.Equal(t, len(listedSnapshots(t, p)), 0)
	inject(server, []string{"GET /snapshots"}, e2bfake.Fault{Status: 404, Body: "<html></html>"}, 1)
	_, err := p.ListSnapshots(t.Context())
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable}, "a balancer knows nothing of that")
}

func TestASnapshotInUseIsDeletedWhenItsCopiesHaveEnded(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	dir := t.TempDir()
	before := process(t, server, dir)
	made := keep(t, before, create(t, before))
	copied := copyOf(t, before, made)
	assert.NilError(t, before.DeleteSnapshot(t.Context(), made.ID))
	assert.Equal(t, len(listedSnapshots(t, before)), 0)
	_, err := before.Create(t.Context(), copying(made))
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	assert.Check(t, knownToBeWithoutEffect(err))
	assert.DeepEqual(t, server.Snapshots(), []string{made.ID})
	assert.NilError(t, before.DeleteSnapshot(t.Context(), made.ID), "once more")
	assert.NilError(t, before.Close(t.Context()))

	after := process(t, server, dir)
	defer func() { assert.Check(t, after.Close(t.Context())) }()
	assert.Equal(t, bash(t, after, copied, "echo hello"), "hello\n")
	assert.Equal(t, len(listedSnapshots(t, after)), 0)
	assert.NilError(t, after.Pause(t.Context(), copied))
	assert.NilError(t, after.Destroy(t.Context(), copied))
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Len(server.Snapshots(), 0)) }, poll.WithTimeout(2*time.Minute))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		left, err := fs.Glob(os.DirFS(dir), "snapshots/*.json")
		assert.NilError(t, err)
		return poll.Compare(is.Len(left, 0))
	}, poll.WithTimeout(2*time.Minute))
}

func TestSnapshotsOfOthersAreLetAlone(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	own := keep(t, p, create(t, p))
	other := provider.NewImpatient(hclog.NewNullLogger()).(*provider.Provider)
	defer func() { assert.Check(t, other.Close(t.Context())) }()
	assert.NilError(t, configure(t, other, server, "another", nil))
	theirs := keep(t, other, create(t, other))
	client := control.New(server.APIURL, e2bfake.DefaultAPIKey, http.DefaultClient)
	defer http.DefaultClient.CloseIdleConnections()
	for _, name := range []string{"sb-notes", "snap-1"} {
		_, err := client.Snapshot(t.Context(), create(t, p), name)
		assert.NilError(t, err)
	}
	list := listedSnapshots(t, p)
	assert.Equal(t, len(list), 1)
	assert.Equal(t, list[0].ID, own.ID)
	for _, id := range []string{theirs.ID, "sb-notes", "code-interpreter-v1", "../sandboxes"} {
		assert.NilError(t, p.DeleteSnapshot(t.Context(), id))
		_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", Snapshot: &sdk.SnapshotSource{ID: id, Key: tenantKey()}})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	}
	assert.Equal(t, len(server.Snapshots()), 4)
}

func TestASnapshotOfWhichNothingIsKnownIsListedToBeDeleted(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	made := keep(t, p, create(t, p))
	assert.NilError(t, p.Close(t.Context()))
	other := configured(t, server, nil) // with a state directory of its own
	list := listedSnapshots(t, other)
	assert.Equal(t, len(list), 1)
	assert.DeepEqual(t, list[0].Labels, map[string]string{sdk.LabelBroker: "b", sdk.LabelSnapshot: made.Labels[sdk.LabelSnapshot]})
	_, err := other.Create(t.Context(), copying(list[0]))
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	assert.NilError(t, other.DeleteSnapshot(t.Context(), list[0].ID))
	assert.Equal(t, len(server.Snapshots()), 0)
}

func TestVariablesAreOnNoDiskWithoutTheKey(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	dir := t.TempDir()
	p := process(t, server, dir)
	defer func() { assert.Check(t, p.Close(t.Context())) }()
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", Env: map[string]string{"A": "a-secret-value"}, TTL: time.Hour})
	assert.NilError(t, err)
	of := keep(t, p, made.ID)
	text, err := os.ReadFile(filepath.Join(dir, "snapshots", of.ID+".json"))
	assert.NilError(t, err)
	assert.Check(t, !bytes.Contains(text, []byte("a-secret-value")))
	assert.Equal(t, bash(t, p, copyOf(t, p, of), `printf %s "$A"`), "a-secret-value")
}

// rerun is a script that leaves word of each time that it runs.
const rerun = "echo line >>/tmp/runs; echo ready; sleep 98765"

func TestNothingOfAnExecutionGoesOnInACopy(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]e2bfake.Options{"the machine goes on": {}, "the machine starts afresh": {RestartAtSnapshot: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := configured(t, cloud(t, options), nil)
			id := create(t, p)
			ctx, leave := context.WithCancel(t.Context())
			var out heard
			ended := make(chan error, 1)
			go func() {
				_, err := p.Execute(ctx, request(id, sdk.Bash, rerun), &out)
				ended <- err
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(out.out(), "ready\n")) }, poll.WithTimeout(2*time.Minute))
			made := keep(t, p, id)
			assert.Check(t, made.Memory)
			copied := copyOf(t, p, made)
			assert.Equal(t, bash(t, p, copied, findRunning), "", "it has ended in the copy")
			assert.Check(t, bash(t, p, id, findRunning) != "", "it runs in the original")
			leave()
			assert.ErrorIs(t, <-ended, context.Canceled)
			assert.Equal(t, bash(t, p, id, findRunning), "")
		})
	}
}

func TestAnInstanceInWhichCommandsRunIsKeptWithoutMemory(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]e2bfake.Options{"the machine goes on": {}, "the machine starts afresh": {RestartAtSnapshot: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := configured(t, cloud(t, options), nil)
			s := newStateful(t, p)
			id := s.request("").InstanceID
			c, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"cat"}, Stdin: true, KeepOutput: 1 << 20})
			assert.NilError(t, err)
			made := keep(t, p, id)
			assert.Check(t, !made.Memory)
			copied := copyOf(t, p, made)
			all, err := p.ListContexts(t.Context(), copied)
			assert.NilError(t, err)
			assert.Equal(t, len(all), 0)
			commands, err := p.ListCommands(t.Context(), copied)
			assert.NilError(t, err)
			assert.Equal(t, len(commands), 0)
			assert.Equal(t, bash(t, p, copied, "pgrep -x cat; true"), "")

			// The original has noticed nothing.
			assert.NilError(t, p.WriteCommand(t.Context(), id, c.ID, []byte("one\n"), true))
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				got, state := logs(t, p, id, c)
				return poll.Compare(is.Equal(got+string(state.State), "one\n"+string(sdk.CommandSucceeded)))
			}, poll.WithTimeout(2*time.Minute))
			assert.Equal(t, s.x(), "5\n")
			assert.Check(t, keep(t, p, id).Memory, "when it has ended")
		})
	}
}

func TestAContextInWhichCodeRanBeginsAfreshInTheCopy(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), nil)
	busy := newStateful(t, p)
	req := busy.request("import time; print('ready', flush=True); time.sleep(98765)")
	ctx, leave := context.WithCancel(t.Context())
	var out heard
	ended := make(chan error, 1)
	go func() {
		_, err := p.Execute(ctx, req, &out)
		ended <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Contains(out.out(), "ready\n")) }, poll.WithTimeout(2*time.Minute))
	copied := copyOf(t, p, keep(t, p, req.InstanceID))
	leave()
	assert.Check(t, <-ended != nil)
	req = busy.request("print(globals().get('x'))")
	req.InstanceID = copied
	out = heard{}
	result, err := p.Execute(t.Context(), req, &out)
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusSucceeded)
	assert.Equal(t, out.out(), "None\n")
}
