package pluginhost_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestARetiredProviderServesItsInstancesAndHasNoNextProcess(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock"), nil, quick)
	assert.NilError(t, s.AwaitHealthy(within(t, time.Minute)))
	p := ready(t, s)
	instance(t, p)
	assert.NilError(t, s.Retire(within(t, time.Minute)))
	poll.WaitOn(t, h.log.has(map[string]any{"@message": "drained"}), poll.WithTimeout(2*time.Minute)) // said on the way
	assert.Equal(t, s.State().Phase, pluginhost.PhaseDraining)
	_, err := ready(t, s).List(t.Context())
	assert.NilError(t, err)

	assert.NilError(t, syscall.Kill(s.State().PID, syscall.SIGKILL))
	<-s.Finished()
	assert.Equal(t, s.State().Phase, pluginhost.PhaseStopped)
	_, err = s.Provider(t.Context())
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
}

func TestAProviderThatIsDownRetiresAtOnce(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock"), sdk.Settings{"on_configure": `{"crash": "before"}`}, quick, func(o *pluginhost.SuperviseOptions) {
		o.Backoff.Retry = time.Hour // so that it is between two tries
	})
	poll.WaitOn(t, phase(s, pluginhost.PhaseUnavailable), poll.WithTimeout(2*time.Minute))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if state := s.State(); state.PID != 0 {
			return poll.Continue("%+v", state)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.NilError(t, s.Retire(t.Context()))
	<-s.Finished()
}

func TestWhoIsNotHealthyInTimeSaysWhy(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock"), sdk.Settings{"unhealthy": "no room"}, quick)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	poll.WaitOn(t, phase(s, pluginhost.PhaseUnhealthy), poll.WithTimeout(2*time.Minute))
	cancel()
	assert.ErrorContains(t, s.AwaitHealthy(ctx), "no room")

	bad := h.supervise(h.spec("mock"), sdk.Settings{"on_configure": `{"fail": "SB002", "field": "secret", "message": "is wrong"}`}, quick)
	assert.ErrorIs(t, bad.AwaitHealthy(within(t, time.Minute)), &sdk.Error{Code: sdk.CodeInvalidConfig})
}

func TestAFileThatWasReplacedIsNoticed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mock")
	program, err := os.ReadFile(filepath.Join(plugins, "mock"))
	assert.NilError(t, err)
	install := func(program []byte) {
		assert.NilError(t, os.WriteFile(path+".new", program, 0o755))
		assert.NilError(t, os.Rename(path+".new", path))
	}
	install(program)
	h := newHost(t, func(o *pluginhost.LauncherOptions) { o.PluginDir = dir })
	s := h.supervise(h.spec("mock"), nil, quick)
	_, outdated := s.Outdated()
	assert.Check(t, !outdated, "nothing runs yet, or the newest")
	ready(t, s)
	_, outdated = s.Outdated()
	assert.Check(t, !outdated)
	assert.NilError(t, os.Chmod(path, 0o700))
	_, outdated = s.Outdated()
	assert.Check(t, !outdated, "its content is the same")
	install(append(program, "more"...))
	_, outdated = s.Outdated()
	assert.Check(t, outdated)
	assert.NilError(t, os.Remove(path))
	_, outdated = s.Outdated()
	assert.Check(t, !outdated, "what is gone is no newer version")
}
