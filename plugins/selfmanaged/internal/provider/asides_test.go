package provider

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/smallroot"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// residentOf is the memory of the processes of a sandbox that is theirs alone and in files of
// memory, in bytes.
func residentOf(t *testing.T, sandboxID string) (bytes int64, processes int) {
	t.Helper()
	for pid := range processesNaming(sandboxID) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has just ended
		}
		processes++
		for _, what := range []string{"RssAnon:", "RssShmem:"} {
			_, rest, _ := strings.Cut(string(text), what)
			kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			n, _ := strconv.ParseInt(kib, 10, 64)
			bytes += n << 10
		}
	}
	return bytes, processes
}

// onDiskOf is what paused instances take there.
func onDiskOf(t *testing.T, p testProvider) (bytes int64, files int) {
	t.Helper()
	entries, err := os.ReadDir(p.asides.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0
	}
	assert.NilError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		assert.NilError(t, err)
		bytes += info.Size()
	}
	return bytes, len(entries)
}

func roomOf(t *testing.T, p testProvider) int64 {
	t.Helper()
	room, err := p.snapshots.runtime.Room()
	assert.NilError(t, err)
	return room
}

func TestAPausedInstanceHoldsNoMemory(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, map[string]any{"max_sandboxes": 1, "queue_timeout": "4m"})
	id := create(t, p, templatePython)
	python := newContext(t, p, id, sdk.Python)
	python.says(`
import os, random
data = os.urandom(50 << 20)
random.seed(1)
open("kept", "w").write("a file")
print(random.random())`)
	first := python.says("print(sum(data[::4096]))")
	counter := startCommand(t, p, shell(id, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done"))
	waitFor(t, p, id, counter.ID, "3\n")
	sandbox := p.instances.lookUp(id).sandbox().ID
	held, _ := residentOf(t, sandbox)
	assert.Check(t, held >= 50<<20, "%d", held)
	room := roomOf(t, p)

	released, err := p.PauseReleasing(t.Context(), id)
	assert.NilError(t, err)
	assert.Check(t, released)
	held, processes := residentOf(t, sandbox)
	assert.Check(t, is.Equal(processes, 0))
	assert.Check(t, is.Equal(held, int64(0)))
	assert.Check(t, is.Equal(roomOf(t, p), room), "nothing is left of it in memory")
	groups, err := filepath.Glob("/sys/fs/cgroup/*/sandbox-broker/" + p.brokerID + "*/" + sandbox)
	assert.NilError(t, err)
	assert.Check(t, is.Len(groups, 0))
	bytes, files := onDiskOf(t, p)
	assert.Check(t, is.Equal(files, 1))
	assert.Check(t, bytes >= 50<<20, "%d", bytes)
	released, err = p.PauseReleasing(t.Context(), id)
	assert.NilError(t, err, "a second time too")
	assert.Check(t, released)

	// Its place is another one's, and as long as that has it there is none to go on in.
	other := create(t, p, templateBash)
	patience := p.asides.patience
	p.asides.patience = 100 * time.Millisecond
	assert.ErrorIs(t, p.Resume(t.Context(), id), &sdk.Error{Code: sdk.CodeQuotaExceeded})
	_, err = p.ListCommands(t.Context(), id)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConflict}, "it stays paused")
	assert.NilError(t, p.Destroy(t.Context(), other))
	p.asides.patience = patience

	assert.NilError(t, p.Resume(t.Context(), id))
	assert.Equal(t, python.says("print(sum(data[::4096]))"), first)
	assert.Equal(t, python.says(`print(open("kept").read(), random.random())`), "a file 0.8474337369372327", "what is random goes on")
	last := strings.Count(seen(t, p, id, counter.ID), "\n")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if now := strings.Count(seen(t, p, id, counter.ID), "\n"); now <= last {
			return poll.Continue("it stands at %d", now)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	_, files = onDiskOf(t, p)
	assert.Check(t, is.Equal(files, 0))
	assert.NilError(t, p.Destroy(t.Context(), id))
}

// broken is a sandbox that cannot be written down.
type broken struct {
	running
	err error
}

func (b broken) Checkpoint(context.Context, string, []byte) (*runsc.Checkpoint, error) {
	return nil, b.err
}

func TestAnInstanceThatCannotBeWrittenDownIsNotLost(t *testing.T) {
	needsSnapshots(t)
	for name, test := range map[string]struct {
		settings map[string]any
		change   func(*testing.T, testProvider, *sandbox)
		refused  bool
	}{
		"the checkpoint fails": {change: func(_ *testing.T, _ testProvider, s *sandbox) {
			s.running = broken{s.running, errors.New("broken")}
		}},
		"there is no room in memory": {refused: true, change: func(_ *testing.T, _ testProvider, s *sandbox) {
			s.running = broken{s.running, runsc.ErrNoRoom}
		}},
		"the disk is full": {refused: true, change: func(t *testing.T, p testProvider, _ *sandbox) {
			assert.NilError(t, os.MkdirAll(p.asides.dir, 0o700))
			assert.NilError(t, unix.Mount("tmpfs", p.asides.dir, "tmpfs", 0, "size=1m"))
			t.Cleanup(func() { assert.Check(t, unix.Unmount(p.asides.dir, 0)) })
		}},
		"it would take more than it may": {refused: true, settings: map[string]any{"paused_mb": 1}},
		"it is frozen in any case":       {settings: map[string]any{"paused_mb": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, test.settings)
			id := create(t, p, templatePython)
			python := newContext(t, p, id, sdk.Python)
			python.says("x = 1")
			i := p.instances.lookUp(id)
			s := i.sandbox()
			whole, room := s.running, roomOf(t, p)
			if test.change != nil {
				test.change(t, p, s)
			}
			released, err := p.PauseReleasing(t.Context(), id)
			assert.Check(t, !released)
			if test.refused {
				assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeQuotaExceeded})
				assert.ErrorContains(t, err, "no room for another paused instance")
			} else {
				assert.NilError(t, err)
				_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "1"})
				assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConflict})
				assert.NilError(t, p.Resume(t.Context(), id))
			}
			assert.Equal(t, python.says("print(x)"), "1")
			assert.Check(t, is.Equal(i.sandbox(), s), "it is where it was")
			assert.Check(t, is.Equal(roomOf(t, p), room))
			if p.asides != nil {
				_, files := onDiskOf(t, p)
				assert.Check(t, is.Equal(files, 0))
				assert.Check(t, is.Equal(p.asides.used, int64(0)))
			}
			s.running = whole
		})
	}
}

func TestAnInstanceWithVolumesIsFrozen(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	p.instances.lookUp(id).volumes = true
	released, err := p.PauseReleasing(t.Context(), id)
	assert.NilError(t, err)
	assert.Check(t, !released)
	assert.NilError(t, p.Resume(t.Context(), id))
}

func TestWhatIsOnTheDiskEndsWithItsInstance(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, nil)
	for name, end := range map[string]func(id string){
		"destroyed": func(id string) { assert.NilError(t, p.Destroy(t.Context(), id)) },
		"its time is over": func(id string) {
			_, err := p.SetTTL(t.Context(), id, time.Nanosecond)
			assert.NilError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := create(t, p, templateBash)
			command := startCommand(t, p, shell(id, "sleep 600")).ID
			followed := make(chan error, 1)
			go func() {
				_, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command, Follow: true}, func(sdk.CommandOutput) error { return nil })
				followed <- err
			}()
			assert.NilError(t, p.Pause(t.Context(), id))
			end(id)
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if _, files := onDiskOf(t, p); files > 0 {
					return poll.Continue("%d files", files)
				}
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute))
			err := <-followed
			assert.Check(t, sdk.CodeOf(err) == sdk.CodeNotFound || sdk.CodeOf(err) == sdk.CodeConflict, "%v", err)
			assert.ErrorIs(t, p.Resume(t.Context(), id), &sdk.Error{Code: sdk.CodeNotFound})
			assert.Check(t, is.Equal(p.pool.Stats().InUse, 0))
		})
	}
}

func TestWhatEndsWhileItIsPausedOrResumedLeavesNothing(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, map[string]any{"queue_timeout": "1m"})
	room := roomOf(t, p)
	for range 12 {
		id := create(t, p, templateBash)
		var all sync.WaitGroup
		all.Go(func() {
			for p.instances.lookUp(id) != nil {
				for _, act := range []func(context.Context, string) error{p.Pause, p.Resume} {
					_ = act(t.Context(), id) // whatever becomes of it
				}
			}
		})
		late := time.NewTimer(time.Duration(rand.IntN(600)) * time.Millisecond)
		<-late.C
		assert.NilError(t, p.Destroy(t.Context(), id))
		all.Wait()
	}
	_, files := onDiskOf(t, p)
	assert.Check(t, is.Equal(files, 0))
	assert.Check(t, is.Equal(p.pool.Stats().InUse, 0))
	assert.Check(t, is.Equal(roomOf(t, p), room))
}

func TestManyPausesLeaveNothing(t *testing.T) {
	tier.Full(t)
	needsSnapshots(t)
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	python := newContext(t, p, id, sdk.Python)
	python.says("n = 0")
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		assert.NilError(t, err)
		return len(entries)
	}
	again := func() {
		assert.NilError(t, p.Pause(t.Context(), id))
		assert.NilError(t, p.Resume(t.Context(), id))
		python.says("n += 1")
	}
	again()
	open, going, room := descriptors(), runtime.NumGoroutine(), roomOf(t, p)
	times := 100
	if testing.Short() {
		times = 20
	}
	for range times - 1 {
		again()
	}
	assert.Equal(t, python.says("print(n)"), strconv.Itoa(times))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n := descriptors(); n > open+2 {
			return poll.Continue("%d descriptors, %d before", n, open)
		}
		if n := runtime.NumGoroutine(); n > going+3 {
			return poll.Continue("%d goroutines, %d before", n, going)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	_, files := onDiskOf(t, p)
	assert.Check(t, is.Equal(files, 0))
	assert.Check(t, is.Equal(roomOf(t, p), room))
	one, processes := residentOf(t, p.instances.lookUp(id).sandbox().ID)
	assert.Check(t, processes < 10, "%d processes", processes)
	assert.Check(t, one < 200<<20, "%d", one)
}

func TestAResumedInstanceHasItsNetwork(t *testing.T) {
	needsSnapshots(t)
	port := server(t)
	address := "http://127.0.0.1:" + strconv.Itoa(port)
	p := newProvider(t, nil)
	policy := sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "127.0.0.1", Ports: []int{port}, Paths: []string{"/a/*"}, Private: true}}}
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, Labels: map[string]string{sdk.LabelTenant: "acme"}, Network: &policy})
	assert.NilError(t, err)
	python := newContext(t, p, made.ID, sdk.Python)
	get := `import os; os.environ["NO_PROXY"] = os.environ["no_proxy"] = ""` + "\n" + fetch(address+"/a/b")
	assert.Equal(t, python.says(get), "GET /a/b")
	for range 2 {
		assert.NilError(t, p.Pause(t.Context(), made.ID))
		assert.Check(t, p.instances.lookUp(made.ID).isAside() != nil)
		assert.NilError(t, p.Resume(t.Context(), made.ID))
		assert.Equal(t, python.says(get), "GET /a/b", "at once, and a context that was there finds its proxy where it was")
	}
	assert.NilError(t, p.Pause(t.Context(), made.ID))
	assert.NilError(t, p.SetNetwork(t.Context(), made.ID, sdk.NetworkPolicy{}))
	assert.NilError(t, p.Resume(t.Context(), made.ID))
	assert.Check(t, is.Contains(python.says(get), "403 sandbox broker: "), "what was taken from it meanwhile it has not")
	assert.NilError(t, p.Destroy(t.Context(), made.ID))
}

func TestWhatAnInstanceNeedsOfThisMachineStaysWhileItIsPaused(t *testing.T) {
	tier.Full(t)
	needsSnapshots(t)
	aside := func(t *testing.T, p testProvider, id string) {
		t.Helper()
		released, err := p.PauseReleasing(t.Context(), id)
		assert.NilError(t, err)
		assert.Assert(t, released)
	}
	t.Run("its template", func(t *testing.T) {
		p := newProvider(t, nil)
		built, err := buildTemplate(t, p, sdk.BuildTemplateRequest{
			Rootfs: smallroot.Bash(t), MemoryMB: 100, Env: map[string]string{"OWN": "template"}, Start: "echo started > /workspace/started; sleep 600",
		})
		assert.NilError(t, err)
		id := createOf(t, p, built.Image)
		shell := newContext(t, p, id, sdk.Bash)
		shell.says("n=1; cd /tmp")
		for range 2 {
			aside(t, p, id)
			assert.NilError(t, p.RemoveTemplate(t.Context(), built.Image))
			p.templates.background.Wait()
			assert.NilError(t, p.Resume(t.Context(), id))
		}
		assert.Equal(t, shell.says("pwd; echo $n $OWN $GIVEN; cat /srv/greeting /workspace/started"), "/tmp\n1 template given\nhello from the image\nstarted")
		m, err := p.InstanceMetrics(t.Context(), id)
		assert.NilError(t, err)
		assert.Equal(t, m.MemoryLimit, int64(100<<20))
		aside(t, p, id)
		assert.NilError(t, p.Destroy(t.Context(), id))
		p.templates.background.Wait()
		left, err := os.ReadDir(filepath.Join(filepath.Dir(p.dir), "templates", "images"))
		assert.NilError(t, err)
		assert.Check(t, is.Len(left, 0), "nobody needs it any more")
	})
	t.Run("its packages, in a copy of a prepared sandbox", func(t *testing.T) {
		index := startCounted(t)
		index.addWheel("first", "value = 'from first'", nil)
		p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple(), "images": imagesAlways})
		id := create(t, p, templatePython)
		got, err := install(t, p, id, "first")
		succeeded(t, got, err)
		aside(t, p, id)
		sets, err := filepath.Glob(filepath.Join(p.dir+"-keep", "package-layers", "sets", "*.json"))
		assert.NilError(t, err)
		assert.Assert(t, is.Len(sets, 1))
		assert.NilError(t, os.Remove(sets[0]))
		assert.NilError(t, p.layers.store.Collect())
		assert.NilError(t, p.Resume(t.Context(), id))
		assert.Equal(t, run(t, p, id, sdk.Python, "import first; print(first.value)").stdout, "from first\n")
		assert.NilError(t, p.Destroy(t.Context(), id))
		assert.NilError(t, p.layers.store.Collect())
		left, err := os.ReadDir(p.layers.store.Dir())
		assert.NilError(t, err)
		assert.Check(t, is.Len(left, 0), "nobody needs it any more")
	})
}

func TestASandboxThatDiesWhileItIsWrittenDownIsNoPausedInstance(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	s := p.instances.lookUp(id).sandbox()
	s.running = dying{s.running}
	_, err := p.PauseReleasing(t.Context(), id)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n := p.pool.Stats().InUse; n > 0 {
			return poll.Continue("%d in use", n)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.ErrorIs(t, p.Resume(t.Context(), id), &sdk.Error{Code: sdk.CodeNotFound})
}

// dying is a sandbox that dies when it is written down.
type dying struct{ running }

func (d dying) Checkpoint(ctx context.Context, _ string, _ []byte) (*runsc.Checkpoint, error) {
	killed, cancel := context.WithCancel(ctx)
	cancel()
	return nil, errors.Join(errors.New("broken"), d.Destroy(killed))
}

func TestAPauseOrResumeDoesNotWaitForOthersForEver(t *testing.T) {
	needsSnapshots(t)
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	usual := p.asides.inTurn
	busy := func() (over func()) {
		p.asides.inTurn = 50 * time.Millisecond
		for range snapshotsAtOnce {
			assert.NilError(t, p.snapshots.takeTurn(t.Context()))
		}
		return func() {
			for range snapshotsAtOnce {
				p.snapshots.endTurn()
			}
			p.asides.inTurn = usual
		}
	}
	over := busy()
	assert.ErrorIs(t, p.Pause(t.Context(), id), &sdk.Error{Code: sdk.CodeQuotaExceeded})
	assert.Equal(t, run(t, p, id, sdk.Bash, "echo goes on").stdout, "goes on\n")
	over()
	assert.NilError(t, p.Pause(t.Context(), id))
	over = busy()
	assert.ErrorIs(t, p.Resume(t.Context(), id), &sdk.Error{Code: sdk.CodeQuotaExceeded})
	assert.Check(t, is.Equal(p.pool.Stats().InUse, 0))
	over()
	assert.NilError(t, p.Resume(t.Context(), id))
	assert.Equal(t, run(t, p, id, sdk.Bash, "echo goes on").stdout, "goes on\n")
}
