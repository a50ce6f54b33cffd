package provider

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAPausedInstanceStandsStillAndGoesOn(t *testing.T) {
	onEachRuntime(t, func(t *testing.T, newProvider makeProvider) {
		p := newProvider(t, map[string]any{"pool_size": 1})
		id := create(t, p, templatePython)
		_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "open('kept', 'w').write('x' * (3 << 20))"})
		assert.NilError(t, err)

		assert.NilError(t, p.Pause(t.Context(), id))
		assert.NilError(t, p.Pause(t.Context(), id), "a second time too")
		asked, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = p.instances.lookUp(id).sandbox().guest.Instance().InstanceMetrics(asked, "")
		if p.asides == nil {
			assert.ErrorIs(t, err, context.DeadlineExceeded, "the guest is frozen too")
		}
		assert.Assert(t, err != nil, "no guest answers")
		_, err = execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "1"})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConflict})
		before, err := p.InstanceMetrics(t.Context(), id)
		assert.NilError(t, err, "what it used before")
		assert.Check(t, before.Disk >= 3<<20, "%d", before.Disk)

		assert.NilError(t, p.Resume(t.Context(), id))
		assert.NilError(t, p.Resume(t.Context(), id), "a second time too")
		got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print(len(open('kept').read()))"})
		assert.NilError(t, err)
		assert.Equal(t, got.stdout, "3145728\n")

		assert.NilError(t, p.Pause(t.Context(), id))
		assert.NilError(t, p.Destroy(t.Context(), id), "frozen as it is")
		assert.ErrorIs(t, p.Resume(t.Context(), id), &sdk.Error{Code: sdk.CodeNotFound})
	})
}

func TestAnInstanceThatWorksIsNotPaused(t *testing.T) {
	p := newProvider(t, map[string]any{"pool_size": 1})
	id := create(t, p, templatePython)
	started, result := newAnnouncer(), make(chan error, 1)
	go func() {
		_, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print(1)\nwhile True: pass", Timeout: time.Minute, OutputLimit: 1 << 20}, started)
		result <- err
	}()
	<-started.written
	assert.ErrorIs(t, p.Pause(t.Context(), id), &sdk.Error{Code: sdk.CodeConflict})
	assert.NilError(t, p.Destroy(t.Context(), id))
	assert.NilError(t, <-result)
}

// What goes on in an instance is neither waited for by a resume, nor held up by it.
func TestAResumeOfWhatIsInUseChangesNothing(t *testing.T) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	started, result := newAnnouncer(), make(chan error, 1)
	go func() {
		_, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "echo begun; until test -e go-on; do sleep 0.05; done", Timeout: time.Minute, OutputLimit: 1 << 20}, started)
		result <- err
	}()
	<-started.written
	watching, stop := context.WithCancel(t.Context())
	ready, watched := make(chan struct{}), make(chan error, 1)
	go func() {
		watched <- p.WatchFiles(watching, sdk.WatchFilesRequest{InstanceID: id, Path: "."}, func() error { close(ready); return nil }, func([]sdk.FileChange) error { return nil })
	}()
	<-ready
	// Nobody gives it any time: if it waited, it would fail.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NilError(t, p.Resume(ended, id))
	assert.ErrorIs(t, p.Pause(t.Context(), id), &sdk.Error{Code: sdk.CodeConflict})
	assert.NilError(t, p.Resume(ended, id))
	_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "touch go-on"})
	assert.NilError(t, err)
	assert.NilError(t, <-result)

	assert.NilError(t, p.Pause(t.Context(), id), "a watch does not hinder that")
	assert.NilError(t, p.Resume(t.Context(), id))
	_, err = execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "touch after"})
	assert.NilError(t, err)
	stop()
	if p.asides != nil {
		assert.ErrorIs(t, <-watched, &sdk.Error{Code: sdk.CodeConflict}, "its sandbox is another one")
	} else {
		assert.ErrorIs(t, <-watched, context.Canceled)
	}
}

func TestAnInstanceSaysWhatItUses(t *testing.T) {
	onEachRuntime(t, func(t *testing.T, newProvider makeProvider) {
		p := newProvider(t, map[string]any{"pool_size": 1, "memory_mb": 256, "workspace_mb": 64, "processes": 77, "cpus": 1})
		id := create(t, p, templatePython)
		first, err := p.InstanceMetrics(t.Context(), id)
		assert.NilError(t, err)
		assert.Check(t, time.Since(first.MeasuredAt) < time.Minute)
		assert.Check(t, first.Memory > 1<<20 && first.Memory < 256<<20, "%d", first.Memory)
		assert.Check(t, is.Equal(first.MemoryLimit, int64(256<<20)))
		assert.Check(t, is.Equal(first.DiskLimit, int64(128<<20)), "/workspace and /tmp")
		assert.Check(t, is.Equal(first.ProcessLimit, int64(77)))
		assert.Check(t, is.Equal(first.CPULimit, 1.0))

		_, err = execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: `
import time
open('file', 'wb').write(bytes(20 << 20))
began = time.process_time() # what it took to start may have been measured before
while time.process_time() - began < 0.5: pass`})
		assert.NilError(t, err)
		later, err := p.InstanceMetrics(t.Context(), id)
		assert.NilError(t, err)
		assert.Check(t, later.Disk-first.Disk >= 20<<20, "%d to %d", first.Disk, later.Disk)
		poll.WaitOn(t, func(poll.LogT) poll.Result { // the kernel in the sandbox counts with delay
			m, err := p.InstanceMetrics(t.Context(), id)
			switch {
			case err == nil && m.Memory-first.Memory < 19<<20:
				return poll.Continue("%d to %d: files are memory", first.Memory, m.Memory)
			case err == nil && m.CPUTime-first.CPUTime < 400*time.Millisecond:
				return poll.Continue("%s to %s of CPU", first.CPUTime, m.CPUTime)
			}
			return poll.Compare(is.Nil(err))
		}, poll.WithTimeout(2*time.Minute))

		started, result := newAnnouncer(), make(chan error, 1)
		go func() {
			_, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: `
import subprocess, time
for _ in range(5): subprocess.Popen(['sleep', '1000'])
print(1)
time.sleep(1000)`, Timeout: time.Minute, OutputLimit: 1 << 20}, started)
			result <- err
		}()
		<-started.written
		during, err := p.InstanceMetrics(t.Context(), id)
		assert.NilError(t, err)
		assert.Check(t, during.Processes >= 6, "%d", during.Processes)
		assert.NilError(t, p.Destroy(t.Context(), id))
		assert.NilError(t, <-result)
		_, err = p.InstanceMetrics(t.Context(), id)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	})
}

func TestTheTTLOfAnInstanceCanBeMoved(t *testing.T) {
	p := newProvider(t, map[string]any{"pool_size": 1})
	id := create(t, p, templateBash)
	exited := p.instances.lookUp(id).sandbox().Exited()
	at, err := p.SetTTL(t.Context(), id, time.Hour)
	assert.NilError(t, err)
	assert.Check(t, time.Until(at) > 59*time.Minute)
	_, err = p.SetTTL(t.Context(), id, -1)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
	_, err = p.SetTTL(t.Context(), id, time.Nanosecond)
	assert.NilError(t, err)
	<-exited
	_, err = p.SetTTL(t.Context(), id, time.Hour)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
}
