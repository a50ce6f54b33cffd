package pluginhost_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// supervise starts a provider that is stopped with the test.
func (h *host) supervise(spec pluginhost.Spec, settings sdk.Settings, change ...func(*pluginhost.SuperviseOptions)) *pluginhost.Supervised {
	h.t.Helper()
	options := pluginhost.SuperviseOptions{Logger: h.logger}
	for _, c := range change {
		c(&options)
	}
	s := pluginhost.Supervise(h.Launcher, spec, h.configure(settings), options)
	h.t.Cleanup(func() { s.Stop(within(h.t, time.Minute)) })
	return s
}

// quick shortens all waits of supervision.
func quick(o *pluginhost.SuperviseOptions) {
	o.HealthInterval = 10 * time.Millisecond
	o.Backoff = pluginhost.Backoff{
		Min: time.Millisecond, Max: 2 * time.Millisecond, Retry: 10 * time.Millisecond, Opens: 3, Stable: time.Hour,
	}
}

func ready(t *testing.T, s *pluginhost.Supervised) sdk.Provider {
	t.Helper()
	p, err := s.Provider(within(t, time.Minute))
	assert.NilError(t, err)
	return p
}

func phase(s *pluginhost.Supervised, want pluginhost.Phase) func(poll.LogT) poll.Result {
	return func(poll.LogT) poll.Result {
		if state := s.State(); state.Phase != want {
			return poll.Continue("%+v", state)
		}
		return poll.Success()
	}
}

func TestASupervisedProviderBecomesReadyAndTellsItsHealth(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock"), nil, quick)
	assert.NilError(t, s.Started(within(t, time.Minute)))
	p := ready(t, s)
	instance(t, p)
	assert.Equal(t, s.Label(), "box")
	assert.Equal(t, s.Description().Name, "mock")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if state := s.State(); state.Details["instances"] != "1" {
			return poll.Continue("%+v", state)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	state := s.State()
	assert.Equal(t, state.Phase, pluginhost.PhaseReady)
	assert.Assert(t, state.Healthy)
	assert.Equal(t, state.Reason, "")
	assert.Equal(t, state.Restarts, 0)
	assert.Assert(t, state.PID > 0)

	h.act(map[string]any{"health": map[string]any{"fail": "SB003", "message": "the back end is gone"}})
	poll.WaitOn(t, phase(s, pluginhost.PhaseUnhealthy), poll.WithTimeout(2*time.Minute))
	assert.Equal(t, s.State().Reason, "the back end is gone")
	assert.Assert(t, !s.State().Healthy)
	ready(t, s) // the instances that it has may still work

	h.act(map[string]any{})
	poll.WaitOn(t, phase(s, pluginhost.PhaseReady), poll.WithTimeout(2*time.Minute))

	s.Stop(within(t, time.Minute))
	assert.Equal(t, s.State().Phase, pluginhost.PhaseStopped)
	_, err := s.Provider(t.Context())
	assertPublic(t, err, sdk.CodeUnavailable, `provider "box": is stopped`)
}

func TestAnUnhealthyProviderSaysWhy(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock"), sdk.Settings{"unhealthy": "no more sandboxes"}, quick)
	poll.WaitOn(t, phase(s, pluginhost.PhaseUnhealthy), poll.WithTimeout(2*time.Minute))
	assert.Equal(t, s.State().Reason, "no more sandboxes")
}

func TestAProcessLaunchedBeforeIsTakenOver(t *testing.T) {
	h := newHost(t)
	first, err := h.Launch(t.Context(), h.spec("mock"))
	assert.NilError(t, err)
	s := h.supervise(h.spec("mock"), nil, func(o *pluginhost.SuperviseOptions) { o.First = first })
	assert.Equal(t, s.Description().Name, "mock")
	ready(t, s)
	assert.Equal(t, s.State().PID, first.PID())
}

func TestADeadPluginIsBackBeforeTheNextCall(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock"), sdk.Settings{"persist": true})
	p := ready(t, s)
	id := instance(t, p)
	before := s.State().PID

	failed := make(chan error, 1)
	go func() {
		_, _, err := execute(t.Context(), p, id, `{"grandchild": "60s", "hang": true}`)
		failed <- err
	}()
	poll.WaitOn(t, poll.FileExists(filepath.Join(h.stateDir, "grandchild.pid")), poll.WithTimeout(2*time.Minute))
	killed := time.Now()
	assert.NilError(t, syscall.Kill(before, syscall.SIGKILL))
	assertPublic(t, <-failed, sdk.CodeUnavailable, `provider "box": the plugin ended during the call`)

	result, _, err := execute(t.Context(), ready(t, s), id, `{"result": 1}`)
	assert.NilError(t, err)
	t.Logf("back after %v", time.Since(killed))
	assert.Equal(t, string(result.Result), "1")
	state := s.State()
	assert.Assert(t, state.PID != before)
	assert.Equal(t, state.Restarts, 1)
	exit, ok := errors.AsType[*pluginhost.ExitError](state.LastError)
	assert.Assert(t, ok)
	assert.Equal(t, exit.Status, "was killed by signal SIGKILL")
}

func TestOnReadyComesBeforeAnybodyGetsTheProvider(t *testing.T) {
	h := newHost(t)
	var mu sync.Mutex
	var lists []int
	release := make(chan struct{})
	s := h.supervise(h.spec("mock"), sdk.Settings{"persist": true}, quick, func(o *pluginhost.SuperviseOptions) {
		o.OnReady = func(ctx context.Context, _ string, p sdk.Provider) error {
			<-release
			instances, err := p.List(ctx)
			mu.Lock()
			defer mu.Unlock()
			lists = append(lists, len(instances))
			return err
		}
	})
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Provider(short)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotInitialized)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	close(release)

	instance(t, ready(t, s))
	assert.NilError(t, syscall.Kill(s.State().PID, syscall.SIGKILL))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if s.State().Restarts == 0 {
			return poll.Continue("not restarted")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	ready(t, s)
	mu.Lock()
	defer mu.Unlock()
	assert.DeepEqual(t, lists, []int{0, 1})
}

func TestAnErrorOfOnReadyIsAFailedStart(t *testing.T) {
	h := newHost(t)
	refuse := true
	s := h.supervise(h.spec("mock"), nil, quick, func(o *pluginhost.SuperviseOptions) {
		o.OnReady = func(context.Context, string, sdk.Provider) error {
			if refuse {
				refuse = false
				return errors.New("cannot compare")
			}
			return nil
		}
	})
	assertPublic(t, s.Started(within(t, time.Minute)), sdk.CodeInternal, `provider "box": cannot compare`)
	ready(t, s)
}

func TestAPluginThatKeepsDyingBecomesUnavailableAndComesBack(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock"), sdk.Settings{"bad_starts": int64(3)}, quick, func(o *pluginhost.SuperviseOptions) {
		o.Backoff.Retry = time.Hour
	})
	err := s.Started(within(t, time.Minute))
	assertPublic(t, err, sdk.CodeUnavailable, `provider "box": the plugin ended during the call`)
	exit, ok := errors.AsType[*pluginhost.ExitError](err)
	assert.Assert(t, ok)
	assert.Equal(t, exit.Status, "exited with status 7")

	poll.WaitOn(t, phase(s, pluginhost.PhaseUnavailable), poll.WithTimeout(2*time.Minute))
	// Answered at once, though the context has long to go.
	_, err = s.Provider(t.Context())
	assertPublic(t, err, sdk.CodeNotInitialized, `provider "box": is unavailable: the plugin ended during the call`)
	e, _ := errors.AsType[*sdk.Error](err)
	assert.Assert(t, e.RetryAfter > 40*time.Minute)

	s.Stop(t.Context())
	again := h.supervise(h.spec("mock"), sdk.Settings{"bad_starts": int64(7)}, quick)
	poll.WaitOn(t, phase(again, pluginhost.PhaseReady), poll.WithTimeout(2*time.Minute))
	ready(t, again)
}

func TestARefusedConfigurationIsNotTriedInARow(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock"), sdk.Settings{"on_configure": `{"fail": "SB002", "field": "secret", "message": "is wrong"}`})
	err := s.Started(within(t, time.Minute))
	e, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok)
	assert.Equal(t, e.Code, sdk.CodeInvalidConfig)
	assert.Equal(t, e.Field, "secret")
	assert.Equal(t, e.Message, `provider "box": is wrong`)
	poll.WaitOn(t, phase(s, pluginhost.PhaseUnavailable), poll.WithTimeout(2*time.Minute))
	assert.Equal(t, s.State().Reason, "its configuration is refused; the log of the broker says why")
}

// Whoever mends a plugin need not wait for the next try, nor ask for it.
func TestAMendedPluginIsTriedAtOnce(t *testing.T) {
	dir := t.TempDir()
	assert.NilError(t, os.Chmod(dir, 0o700))
	path := filepath.Join(dir, "box")
	assert.NilError(t, os.WriteFile(path, []byte("#!/bin/sh\nexit 3\n"), 0o700))
	h := newHost(t, func(o *pluginhost.LauncherOptions) { o.PluginDir = dir })
	s := h.supervise(h.spec("box"), nil, func(o *pluginhost.SuperviseOptions) {
		o.Backoff = pluginhost.Backoff{Min: time.Millisecond, Max: time.Millisecond, Retry: time.Hour, Opens: 2, Stable: time.Hour}
		o.FileInterval = 20 * time.Millisecond
	})
	poll.WaitOn(t, phase(s, pluginhost.PhaseUnavailable), poll.WithTimeout(2*time.Minute))
	assert.NilError(t, os.Remove(path))
	assert.NilError(t, os.Link(filepath.Join(plugins, "mock"), path))
	poll.WaitOn(t, phase(s, pluginhost.PhaseReady), poll.WithTimeout(2*time.Minute))
}

func TestAMissingPluginIsReportedWithoutItsPath(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("none"), nil, quick)
	assertPublic(t, s.Started(within(t, time.Minute)), sdk.CodeNotInitialized, `provider "box": there is no plugin "none" in the plugin directory`)
	poll.WaitOn(t, phase(s, pluginhost.PhaseUnavailable), poll.WithTimeout(2*time.Minute))
	_, err := s.Provider(t.Context())
	assertPublic(t, err, sdk.CodeNotInitialized, `provider "box": is unavailable: there is no plugin "none" in the plugin directory`)
	assert.Assert(t, is.Contains(h.log.String(), filepath.Join(plugins, "none")))
}

func TestAHungPluginIsKilledAndReplaced(t *testing.T) {
	for name, hang := range map[string]func(*testing.T, *host, *pluginhost.Supervised){
		"one that never answers health": func(_ *testing.T, h *host, _ *pluginhost.Supervised) {
			h.act(map[string]any{"health": map[string]any{"hang": true}})
		},
		"one that is stopped by a signal": func(t *testing.T, _ *host, s *pluginhost.Supervised) {
			assert.NilError(t, syscall.Kill(s.State().PID, syscall.SIGSTOP))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			s := h.supervise(h.spec("mock"), nil, quick, func(o *pluginhost.SuperviseOptions) {
				o.HealthTimeout = 100 * time.Millisecond
			})
			ready(t, s)
			hang(t, h, s)
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if s.State().Restarts == 0 {
					return poll.Continue("%+v", s.State())
				}
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute))
			assert.ErrorContains(t, s.State().LastError, "did not answer 3 health probes and was killed")
		})
	}
}

func TestAConfigureThatHangsIsAFailedStart(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock"), sdk.Settings{"on_configure": `{"hang": true}`}, quick, func(o *pluginhost.SuperviseOptions) {
		o.ConfigureTimeout = 100 * time.Millisecond
	})
	assertPublic(t, s.Started(within(t, time.Minute)), sdk.CodeUnavailable, `provider "box": did not accept its configuration within 100ms`)
}

func TestStopCutsAStartShort(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock_silent"), nil)
	s.Stop(within(t, time.Minute))
	assert.ErrorIs(t, s.Started(t.Context()), context.Canceled)
}

func TestTheLogTellsWhyAProviderIsDown(t *testing.T) {
	h := newHost(t)
	s := h.supervise(h.spec("mock"), nil, quick)
	p := ready(t, s)
	_, _, err := execute(t.Context(), p, instance(t, p), `{"crash": "before", "crash_with": "panic"}`)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	poll.WaitOn(t, h.log.has(map[string]any{"@message": "provider down", "provider": "box"}), poll.WithTimeout(2*time.Minute))
	entry := h.log.entries(map[string]any{"@message": "provider down"})[0]
	assert.Equal(t, entry["error"], `provider "box": the plugin exited with status 2`)
	assert.Assert(t, is.Contains(entry["stderr"], "the mock provider was told to crash"))
}

// TestNoPluginOutlivesTheBroker kills a broker in the place of which a copy of
// this test program stands.
func TestNoPluginOutlivesTheBroker(t *testing.T) {
	h := newHost(t)
	pid, kill := h.otherBroker(t)
	kill()
	poll.WaitOn(t, processGoneOrZombie(pid), poll.WithTimeout(2*time.Minute))
	// What it left of sockets goes with the next start.
	next, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{PluginDir: plugins, RuntimeDir: h.runtimeDir, Logger: h.logger, Watchdog: "/proc/self/exe"})
	assert.NilError(t, err)
	assert.NilError(t, next.Close())
}
