package provider

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var tenantKey = bytes.Repeat([]byte{7}, sdk.SnapshotKeyBytes)

func needsSnapshots(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		binaries.Missing(t, "runsc makes checkpoints for root only")
	}
}

// snapshot takes one of an instance; it is deleted with the test.
func snapshot(t testing.TB, p testProvider, instance string, change ...func(*sdk.SnapshotRequest)) sdk.Snapshot {
	t.Helper()
	req := sdk.SnapshotRequest{InstanceID: instance, Key: tenantKey, Labels: map[string]string{sdk.LabelSnapshot: "snap-" + newID()}}
	for _, f := range change {
		f(&req)
	}
	s, err := p.Snapshot(t.Context(), req)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, p.DeleteSnapshot(t.Context(), s.ID)) })
	return s
}

func forFork(req *sdk.SnapshotRequest) { req.Transient, req.Key = true, nil }

// goOn makes an instance from a snapshot.
func goOn(t testing.TB, p testProvider, s sdk.Snapshot, change ...func(*sdk.CreateRequest)) string {
	t.Helper()
	req := sdk.CreateRequest{Template: s.Template, Snapshot: &sdk.SnapshotSource{ID: s.ID, Key: tenantKey}}
	for _, f := range change {
		f(&req)
	}
	i, err := p.Create(t.Context(), req)
	assert.NilError(t, err)
	return i.ID
}

// in is the same context in another instance.
func (c inContext) in(instance string) inContext {
	c.instance = instance
	return c
}

// says runs code that prints, in the context.
func (c inContext) says(code string) string {
	c.t.Helper()
	o := c.run(code)
	assert.Equal(c.t, o.Status, sdk.StatusSucceeded, "%s %s", o.stderr, o.Detail)
	return strings.TrimSpace(o.stdout)
}

func TestACopyGoesOnWhereTheSnapshotWas(t *testing.T) {
	tier.Full(t)
	needsSnapshots(t)
	p := newProvider(t, nil)
	created, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, Env: map[string]string{"OF": "the original", "BOTH": "original"}})
	assert.NilError(t, err)
	original := created.ID
	python := newContext(t, p, original, sdk.Python)
	shell := newContext(t, p, original, sdk.Bash)
	node := newContext(t, p, original, sdk.JavaScript)
	python.says("import random, ssl; n = 1; data = bytearray(8 << 20); open('kept.txt', 'w').write('before')")
	shell.says("n=1; cd /tmp; echo before > here.txt")
	node.says("var n = 1")
	running, err := p.StartCommand(t.Context(), sdk.CommandRequest{
		InstanceID: original, Argv: []string{"bash", "-c", `n=0; while :; do n=$((n+1)); echo $n > /workspace/count; sleep 0.02; done`},
	})
	assert.NilError(t, err)
	untilCounted := func(instance string, least int) {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: instance, Language: sdk.Bash, Code: "cat count"})
			var n int
			if _, e := fmt.Sscan(o.stdout, &n); err != nil || e != nil || n < least {
				return poll.Continue("%v %q", err, o.stdout)
			}
			return poll.Success()
		}, poll.WithTimeout(time.Minute))
	}
	untilCounted(original, 3)

	for name, kind := range map[string]func(*sdk.SnapshotRequest){"kept": func(*sdk.SnapshotRequest) {}, "transient": forFork} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, p, original, kind)
			assert.Check(t, s.Memory)
			assert.Check(t, s.Bytes > 8<<20)
			first, second := goOn(t, p, s), goOn(t, p, s, func(req *sdk.CreateRequest) {
				req.Env = map[string]string{"TOO": "the copy", "BOTH": "copy"}
			})
			for instance, want := range map[string]string{original: "the original,,original", first: "the original,,original", second: "the original,the copy,copy"} {
				const inPython = "import os; print(','.join(os.environ.get(n, '') for n in ('OF', 'TOO', 'BOTH')))"
				o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: instance, Language: sdk.Python, Code: inPython})
				assert.NilError(t, err)
				assert.Check(t, is.Equal(o.stdout, want+"\n"))
				for range 2 { // it stays
					assert.Check(t, is.Equal(python.in(instance).says(inPython), want))
					assert.Check(t, is.Equal(shell.in(instance).says(`echo "$OF,$TOO,$BOTH"`), want))
					assert.Check(t, is.Equal(node.in(instance).says("console.log([process.env.OF, process.env.TOO ?? '', process.env.BOTH].join())"), want))
				}
			}
			values := map[string]bool{}
			for _, instance := range []string{original, first, second} {
				in := python.in(instance)
				assert.Check(t, is.Equal(in.says("n += 1; print(n, len(data), open('kept.txt').read())"), in.says("print(n, len(data), open('kept.txt').read())")))
				values[in.says("print(random.random())")] = true
				values[in.says("print(ssl.RAND_bytes(8))")] = true
				values[shell.in(instance).says("echo $RANDOM$RANDOM$RANDOM")] = true
				assert.Check(t, is.Equal(shell.in(instance).says("n=$((n+1)); pwd; cat here.txt"), "/tmp\nbefore"))
				assert.Check(t, is.Equal(node.in(instance).says("n += 1; console.log(typeof n)"), "number"))
			}
			assert.Check(t, is.Len(values, 9), "randomness is new in each")

			python.in(first).says("n = 'first'; open('kept.txt', 'w').write(n)")
			assert.Check(t, python.in(second).says("print(n)") != "first")
			assert.Check(t, is.Equal(python.in(second).says("print(open('kept.txt').read())"), "before"))
			assert.Check(t, is.Equal(python.in(original).says("print(open('kept.txt').read())"), "before"))

			for _, instance := range []string{original, first, second} {
				list, err := p.ListCommands(t.Context(), instance)
				assert.NilError(t, err)
				assert.Check(t, is.Len(list, 1))
				assert.Check(t, is.Equal(list[0].ID, running.ID))
				var n int
				o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: instance, Language: sdk.Bash, Code: "cat count"})
				assert.NilError(t, err)
				_, _ = fmt.Sscan(o.stdout, &n)
				untilCounted(instance, n+3)
			}
			assert.NilError(t, p.Destroy(t.Context(), first))
			assert.NilError(t, p.Destroy(t.Context(), second))
		})
	}
}

// laterProcess is what another process of the provider finds of what is kept, which the first
// has no more.
func laterProcess(t *testing.T, p testProvider) testProvider {
	t.Helper()
	dir := p.dir + "2"
	assert.NilError(t, os.Mkdir(dir, 0o700))
	assert.NilError(t, os.Rename(p.dir+"-keep", dir+"-keep"))
	later := testProvider{configured(t, dir, p.brokerID, nil), dir, p.brokerID}
	t.Cleanup(func() { assert.Check(t, later.Close(context.WithoutCancel(t.Context()))) })
	return later
}

func TestSnapshotsAreFoundByALaterProcess(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, nil)
	created, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, Env: map[string]string{"TOKEN": "t0k3n-0f-somebody"}})
	assert.NilError(t, err)
	original := created.ID
	python := newContext(t, p, original, sdk.Python)
	python.says("secret = 'a'.join(['s3', 'cr3t', 'w0rd']); n = 41")
	s := snapshot(t, p, original, func(req *sdk.SnapshotRequest) { req.IdempotencyKey = "once" })
	again := snapshot(t, p, original, func(req *sdk.SnapshotRequest) { req.IdempotencyKey = "once" })
	assert.Check(t, is.DeepEqual(again, s), "one key makes one snapshot")

	later := laterProcess(t, p)
	list, err := later.ListSnapshots(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(list, 1))
	assert.Check(t, is.DeepEqual(list[0].Labels, s.Labels))
	copied := goOn(t, later, s)
	in := python.in(copied)
	in.provider = later
	assert.Check(t, is.Equal(in.says("import os; n += 1; print(n, secret, os.environ['TOKEN'])"), "42 s3acr3taw0rd t0k3n-0f-somebody"))

	file := filepath.Join(later.dir+"-keep", "snapshots", s.ID+".snapshot")
	text, err := os.ReadFile(file)
	assert.NilError(t, err)
	for _, secret := range []string{"s3acr3taw0rd", "t0k3n-0f-somebody"} {
		assert.Check(t, !bytes.Contains(text, []byte(secret)), "it is in the file as it is")
	}
	info, err := os.Stat(file)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(info.Mode().Perm(), os.FileMode(0o600)))

	wrong := sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: s.ID, Key: bytes.Repeat([]byte{8}, sdk.SnapshotKeyBytes)}}
	_, err = later.Create(t.Context(), wrong)
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeInvalidRequest))
	assert.NilError(t, later.DeleteSnapshot(t.Context(), s.ID))
	_, err = later.Create(t.Context(), wrong)
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotFound))
}

// What runs while a snapshot is taken goes on in the original, and is interrupted in the
// copies, where nobody waits for it.
func TestASnapshotInterruptsNothing(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, nil)
	original := create(t, p, templatePython)
	python := newContext(t, p, original, sdk.Python)
	python.says("import time, os; n = 1")
	ended := make(chan outcome, 2)
	for _, id := range []string{python.ID, ""} {
		go func() {
			var r recorder
			result, err := p.Execute(t.Context(), sdk.ExecuteRequest{
				InstanceID: original, ContextID: id, Language: sdk.Python, Timeout: 2 * time.Minute, OutputLimit: 1 << 20,
				Code: `
import os, time
open(f"/workspace/begun{os.getpid()}", "w").close()
while not os.path.exists("/workspace/go"): time.sleep(0.01)
n = 2
print("through")`,
			}, &r)
			assert.Check(t, err)
			ended <- outcome{ExecuteResult: result, stdout: r.out.String()}
		}()
	}
	shell := newContext(t, p, original, sdk.Bash)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if o := shell.run("ls /workspace/begun*"); strings.Count(o.stdout, "begun") < 2 {
			return poll.Continue("%q", o.stdout)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))

	s := snapshot(t, p, original, forFork)
	copied := goOn(t, p, s)
	assert.Check(t, is.Equal(python.in(copied).says("print(n)"), "1"), "the state of the context was kept")
	assert.Check(t, is.Len(ended, 0))
	shell.says("touch /workspace/go")
	for range 2 {
		o := <-ended
		assert.Check(t, is.Equal(o.Status, sdk.StatusSucceeded))
		assert.Check(t, is.Equal(o.stdout, "through\n"))
	}
	assert.Check(t, is.Equal(python.says("print(n)"), "2"))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		o := shell.in(copied).run("pgrep -f begun || echo none")
		if !strings.Contains(o.stdout, "none") {
			return poll.Continue("%q", o.stdout)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
}

func TestEightForksAtOnce(t *testing.T) {
	tier.Full(t)
	needsSnapshots(t)
	p := newProvider(t, map[string]any{"max_sandboxes": 10})
	original := create(t, p, templatePython)
	python := newContext(t, p, original, sdk.Python)
	python.says("import uuid; data = bytearray(8 << 20)")
	s := snapshot(t, p, original, forFork)
	const forks = 8
	said := make(chan string, forks)
	var all sync.WaitGroup
	for range forks {
		all.Go(func() {
			i, err := p.Create(t.Context(), sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: s.ID}, Env: map[string]string{"FORK": "yes"}})
			if !assert.Check(t, err) {
				return
			}
			var r recorder
			_, err = p.Execute(t.Context(), sdk.ExecuteRequest{
				InstanceID: i.ID, ContextID: python.ID, Timeout: time.Minute, OutputLimit: 1 << 20,
				Code: "import os; print(len(data), os.environ['FORK'], uuid.uuid4())",
			}, &r)
			assert.Check(t, err)
			said <- r.out.String()
		})
	}
	all.Wait()
	close(said)
	different := map[string]bool{}
	for line := range said {
		assert.Check(t, is.Contains(line, "8388608 yes "))
		different[line] = true
	}
	assert.Check(t, is.Len(different, forks))
	assert.NilError(t, p.DeleteSnapshot(t.Context(), s.ID))
	assert.Check(t, is.Equal(python.says("print(len(data))"), "8388608"))
	// One place is left; the next but one waits in vain.
	create(t, p, templatePython)
	none := time.Duration(0)
	_, err := p.Create(t.Context(), sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: s.ID}, MaxQueue: &none})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeQuotaExceeded))
}

func TestCopiesGoOnFromSnapshotsThatWereTakenAtOnce(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, map[string]any{"max_sandboxes": 6})
	original := create(t, p, templateBash)
	const count = 4
	taken := make(chan sdk.Snapshot, count)
	var all sync.WaitGroup
	for range count {
		all.Go(func() {
			s, err := p.Snapshot(t.Context(), sdk.SnapshotRequest{InstanceID: original, Transient: true})
			if assert.Check(t, err) {
				taken <- s
			}
		})
	}
	all.Wait()
	close(taken)
	assert.Check(t, is.Len(taken, count))
	for s := range taken {
		o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: goOn(t, p, s), Language: sdk.Bash, Code: "echo alive"})
		assert.NilError(t, err)
		assert.Check(t, is.Equal(o.stdout, "alive\n"))
		assert.NilError(t, p.DeleteSnapshot(t.Context(), s.ID))
	}
}

func TestTheRoomForCheckpointsIsGivenOnce(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, nil)
	original := create(t, p, templateBash)
	s := snapshot(t, p, original)
	assert.Check(t, is.Len(p.snapshots.turn, 0))
	_, _, release, err := p.snapshots.open(t.Context(), sdk.SnapshotSource{ID: s.ID, Key: tenantKey})
	assert.NilError(t, err)
	assert.Check(t, is.Len(p.snapshots.turn, 1), "it is in memory")
	release()
	assert.Check(t, is.Len(p.snapshots.turn, 0))

	room, err := p.snapshots.runtime.Room()
	assert.NilError(t, err)
	written, err := p.snapshots.reserve(room - 1<<20)
	assert.NilError(t, err)
	_, _, _, err = p.snapshots.open(t.Context(), sdk.SnapshotSource{ID: s.ID, Key: tenantKey})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeQuotaExceeded))
	_, err = p.Snapshot(t.Context(), sdk.SnapshotRequest{InstanceID: original, Transient: true})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeQuotaExceeded))
	written()
	assert.Check(t, is.Len(p.snapshots.turn, 0))
	assert.Check(t, is.Equal(p.snapshots.reserved, int64(0)))
	goOn(t, p, s)
}

func TestWhatCannotBeASnapshotIsRefused(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, nil)
	original := create(t, p, templatePython)
	python := newContext(t, p, original, sdk.Python)
	python.says("data = bytearray(b'x' * (40 << 20))")
	ask := func(change func(*sdk.SnapshotRequest)) (sdk.Snapshot, error) {
		req := sdk.SnapshotRequest{InstanceID: original, Key: tenantKey}
		change(&req)
		return p.Snapshot(t.Context(), req)
	}
	for name, c := range map[string]struct {
		change func(*sdk.SnapshotRequest)
		code   sdk.Code
	}{
		"no such instance":    {func(r *sdk.SnapshotRequest) { r.InstanceID = "none" }, sdk.CodeNotFound},
		"no key":              {func(r *sdk.SnapshotRequest) { r.Key = nil }, sdk.CodeInvalidRequest},
		"half a key":          {func(r *sdk.SnapshotRequest) { r.Key = r.Key[:16] }, sdk.CodeInvalidRequest},
		"larger than allowed": {func(r *sdk.SnapshotRequest) { r.MaxBytes = 16 << 20 }, sdk.CodeQuotaExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ask(c.change)
			assert.Check(t, is.Equal(sdk.CodeOf(err), c.code), "%v", err)
		})
	}
	list, err := p.ListSnapshots(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(list, 0))
	room, err := p.snapshots.runtime.Room()
	assert.NilError(t, err)

	assert.NilError(t, p.Pause(t.Context(), original))
	_, err = ask(func(*sdk.SnapshotRequest) {})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeConflict))
	assert.NilError(t, p.Resume(t.Context(), original))
	assert.Check(t, is.Equal(python.says("print(len(data))"), "41943040"))

	s := snapshot(t, p, original)
	_, err = ask(func(r *sdk.SnapshotRequest) { r.MaxBytes = s.Bytes / 4 * 3 })
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeQuotaExceeded))
	after, err := p.snapshots.runtime.Room()
	assert.NilError(t, err)
	assert.Check(t, is.Equal(after, room), "nothing is left in memory")
	source := func() *sdk.SnapshotSource { return &sdk.SnapshotSource{ID: s.ID, Key: tenantKey} }
	for name, c := range map[string]struct {
		req  sdk.CreateRequest
		code sdk.Code
	}{
		"no such snapshot": {sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: "none", Key: tenantKey}}, sdk.CodeNotFound},
		"a path":           {sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: "../snapshots/" + s.ID, Key: tenantKey}}, sdk.CodeNotFound},
		"another template": {sdk.CreateRequest{Template: templateNode, Snapshot: source()}, sdk.CodeInvalidRequest},
		"half a key":       {sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: s.ID, Key: tenantKey[:16]}}, sdk.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Create(t.Context(), c.req)
			assert.Check(t, is.Equal(sdk.CodeOf(err), c.code), "%v", err)
		})
	}
	for what := range p.snapshots.madeWith {
		t.Run("made with another "+what, func(t *testing.T) {
			was := p.snapshots.madeWith[what]
			defer func() { p.snapshots.madeWith[what] = was }()
			p.snapshots.madeWith[what] = "another"
			_, err := p.Create(t.Context(), sdk.CreateRequest{Snapshot: source()})
			assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeConflict))
			assert.Check(t, is.ErrorContains(err, what))
		})
	}
	// A process with other sandboxes, whatever it says of itself.
	other := newProvider(t, map[string]any{"workspace_mb": 48})
	maps.Copy(other.snapshots.madeWith, p.snapshots.madeWith)
	other.snapshots.disk = p.snapshots.disk
	_, err = other.Create(t.Context(), sdk.CreateRequest{Snapshot: source()})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeConflict))
	assert.Check(t, is.ErrorContains(err, "other files or limits"))
	file := filepath.Join(p.dir+"-keep", "snapshots", s.ID+".snapshot")
	text, err := os.ReadFile(file)
	assert.NilError(t, err)
	text[len(text)/2] ^= 1
	assert.NilError(t, os.WriteFile(file, text, 0o600))
	_, err = p.Create(t.Context(), sdk.CreateRequest{Snapshot: source()})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeInvalidRequest))
	after, err = p.snapshots.runtime.Room()
	assert.NilError(t, err)
	assert.Check(t, is.Equal(after, room), "nothing of what was refused is left in memory")
	assert.Check(t, is.Len(p.instances.list(), 1))
}

// One key makes one snapshot, of those who ask at once too.
func TestOneKeyMakesOneSnapshot(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, nil)
	original := create(t, p, templateBash)
	var all sync.WaitGroup
	ids := make(chan string, 4)
	for range cap(ids) {
		all.Go(func() {
			s, err := p.Snapshot(t.Context(), sdk.SnapshotRequest{InstanceID: original, Key: tenantKey, IdempotencyKey: "one"})
			assert.Check(t, err)
			ids <- s.ID
		})
	}
	all.Wait()
	close(ids)
	different := map[string]bool{}
	for id := range ids {
		different[id] = true
	}
	assert.Check(t, is.Len(different, 1))
	list, err := p.ListSnapshots(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(list, 1))
	assert.NilError(t, p.DeleteSnapshot(t.Context(), list[0].ID))
}

// A copy is a sandbox like others: it can be copied too, as can one that was made from an
// image.
func TestACopyIsCopied(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, map[string]any{"images": imagesAlways})
	instance := create(t, p, templatePython)
	python := newContext(t, p, instance, sdk.Python)
	python.says("import random; n = 0")
	drawn := map[string]bool{}
	for generation := range 4 {
		in := python.in(instance)
		assert.Check(t, is.Equal(in.says("print(n); n += 1"), fmt.Sprint(generation)))
		drawn[in.says("print(random.random())")] = true
		s := snapshot(t, p, instance, forFork)
		next := goOn(t, p, s, func(req *sdk.CreateRequest) {
			req.Env = map[string]string{"GENERATION": fmt.Sprint(generation + 1)}
		})
		assert.NilError(t, p.Destroy(t.Context(), instance))
		assert.NilError(t, p.DeleteSnapshot(t.Context(), s.ID))
		assert.Check(t, is.Equal(python.in(next).says("import os; print(os.environ['GENERATION'])"), fmt.Sprint(generation+1)))
		o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: next, Language: sdk.Python, Code: "import random; print(random.random())"})
		assert.NilError(t, err)
		drawn[o.stdout] = true
		instance = next
	}
	assert.Check(t, is.Len(drawn, 8))
}

func TestARuntimeWithoutCheckpointsSaysSo(t *testing.T) {
	none, err := newSnapshots(dockerRuntime{}, sdk.ConfigureRequest{KeepDir: t.TempDir()}, nil, nil)
	assert.NilError(t, err)
	p := &Provider{snapshots: none, instances: newInstances(hclog.NewNullLogger())}
	p.configured.Store(true)
	_, err = p.Snapshot(t.Context(), sdk.SnapshotRequest{InstanceID: "i", Key: tenantKey})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotFound))
	assert.Assert(t, p.instances.add(&instance{Instance: sdk.Instance{ID: "i"}}))
	_, err = p.Snapshot(t.Context(), sdk.SnapshotRequest{InstanceID: "i", Key: tenantKey})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotSupported))
	_, err = p.createCopy(t.Context(), sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: "s", Key: tenantKey}})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotSupported))
	assert.Check(t, is.ErrorContains(err, "runsc"))
	list, err := p.ListSnapshots(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(list, 0))
	assert.NilError(t, p.DeleteSnapshot(t.Context(), "s"))
	assert.NilError(t, none.close())
}

// What bounds a sandbox bounds it after a snapshot too, and its copies.
func TestTheLimitsOfTheHostAreAsTheyWere(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, map[string]any{"cpus": 0.5})
	original := create(t, p, templateBash)
	limits := func(instance string) (all []string) {
		t.Helper()
		files, err := filepath.Glob("/sys/fs/cgroup/*/sandbox-broker/*/" + instance + "/*")
		assert.NilError(t, err)
		more, err := filepath.Glob("/sys/fs/cgroup/sandbox-broker/*/" + instance + "/*")
		assert.NilError(t, err)
		for _, file := range append(files, more...) {
			switch filepath.Base(file) {
			case "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "cpu.cfs_quota_us", "pids.max", "memory.max", "cpu.max":
				text, err := os.ReadFile(file)
				assert.NilError(t, err)
				all = append(all, filepath.Base(file)+" "+strings.TrimSpace(string(text)))
			}
		}
		return all
	}
	before := limits(original)
	if len(before) == 0 {
		t.Skip("this machine has no cgroups to set limits with")
	}
	s := snapshot(t, p, original)
	assert.Check(t, is.DeepEqual(limits(original), before))
	copied := goOn(t, p, s)
	assert.Check(t, is.DeepEqual(limits(copied), before))
	fork := snapshot(t, p, original, forFork)
	assert.Check(t, fmt.Sprint(limits(original)) != fmt.Sprint(before), "it holds the memory of the snapshot")
	assert.NilError(t, p.DeleteSnapshot(t.Context(), fork.ID))
	assert.Check(t, is.DeepEqual(limits(original), before))
}
