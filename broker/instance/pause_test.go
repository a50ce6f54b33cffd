package instance_test

import (
	"context"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func TestAPausedInstanceTakesNoExecutions(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var asked []bool
		first.OnPause = func(_ context.Context, _ string, pause bool) error {
			asked = append(asked, pause)
			return nil
		}
		info := create(t, s, instance.CreateRequest{Session: "s"})
		paused, err := s.Pause(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
		assert.Assert(t, paused.Paused && get(t, s, info).Paused)
		_, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Code: "1", Language: "python"})
		assert.Error(t, err, "instance "+info.ID.String()+": SB014: the instance is paused; resume it first")
		again, err := s.Pause(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
		assert.Assert(t, again.Paused)

		resumed, err := s.Resume(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
		assert.Assert(t, !resumed.Paused)
		_, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Code: "1", Language: "python"})
		assert.NilError(t, err)
		assert.DeepEqual(t, asked, []bool{true, true, false})
		_, err = s.Pause(t.Context(), umbrella, info.ID.String())
		assertCode(t, err, sdk.CodeNotFound)
	})
}

func TestWhatRunsIsNotPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnPause = func(context.Context, string, bool) error { return nil }
		running := make(chan struct{})
		first.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
			<-running
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		}
		info := create(t, s, instance.CreateRequest{})
		go func() {
			_, err := s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Code: "1", Language: "python"})
			assert.Check(t, err)
		}()
		synctest.Wait()
		assert.Equal(t, get(t, s, info).Executions, 1)
		_, err := s.Pause(t.Context(), acme, info.ID.String())
		assertCode(t, err, sdk.CodeConflict)
		close(running)
		synctest.Wait()
		_, err = s.Pause(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
	})
}

// Whether the provider takes its time or not, one that runs is left as it is.
func TestAResumeOfWhatRunsHindersNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		going := make(chan error)
		first.OnPause = func(context.Context, string, bool) error { return <-going }
		info := create(t, s, instance.CreateRequest{})
		done := make(chan error, 1)
		go func() {
			_, err := s.Resume(t.Context(), acme, info.ID.String())
			done <- err
		}()
		synctest.Wait()
		_, err := s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Code: "1", Language: "python"})
		assert.NilError(t, err)
		_, err = s.Pause(t.Context(), acme, info.ID.String())
		assertCode(t, err, sdk.CodeConflict)
		going <- nil
		assert.NilError(t, <-done)

		go func() {
			_, err := s.Pause(t.Context(), acme, info.ID.String())
			done <- err
		}()
		synctest.Wait()
		_, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Code: "1", Language: "python"})
		assertCode(t, err, sdk.CodeConflict)
		going <- nil
		assert.NilError(t, <-done)
		go func() {
			_, err := s.Resume(t.Context(), acme, info.ID.String())
			done <- err
		}()
		synctest.Wait()
		_, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Code: "1", Language: "python"})
		assertCode(t, err, sdk.CodeConflict)
		going <- nil
		assert.NilError(t, <-done)
	})
}

func TestAPauseThatFailsOrGoesOnIsNoPause(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		going := make(chan error)
		first.OnPause = func(ctx context.Context, _ string, _ bool) error {
			assert.Check(t, ctx.Err())
			return <-going
		}
		info := create(t, s, instance.CreateRequest{})
		caller, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.Pause(caller, acme, info.ID.String())
			done <- err
		}()
		synctest.Wait()
		leave() // what was begun goes on
		_, err := s.Resume(t.Context(), acme, info.ID.String())
		assertCode(t, err, sdk.CodeConflict)
		_, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Code: "1", Language: "python"})
		assertCode(t, err, sdk.CodeConflict)
		going <- &sdk.Error{Code: sdk.CodeUnavailable, Message: "stuck", NoEffect: true}
		assertCode(t, <-done, sdk.CodeUnavailable)
		assert.Assert(t, !get(t, s, info).Paused)
		_, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Code: "1", Language: "python"})
		assert.NilError(t, err)
	})
}

// Whoever takes for running what is frozen has executions that are refused, and is told
// that there is nothing to resume.
func TestWhatMayBePausedCountsAsPaused(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		paused bool
	}{
		"the plugin ended":                {wire.ErrPluginGone, true},
		"the back end is in trouble":      {sdk.Errorf(sdk.CodeUnavailable, "stuck"), true},
		"the connection broke":            {sdk.Errorf(sdk.CodeConnectionFailed, "reset"), true},
		"it was never reached":            {&sdk.Error{Code: sdk.CodeConnectionFailed, Message: "refused", NoEffect: true}, false},
		"it refuses":                      {sdk.Errorf(sdk.CodeConflict, "not now"), false},
		"the audit log cannot be written": {sdk.Errorf(sdk.CodeUnavailable, "%w", effect.ErrRefused), false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				first.OnPause = func(_ context.Context, _ string, pause bool) error {
					if pause {
						return test.err
					}
					return nil
				}
				info := create(t, s, instance.CreateRequest{})
				_, err := s.Pause(t.Context(), acme, info.ID.String())
				assert.Assert(t, err != nil)
				assert.Equal(t, get(t, s, info).Paused, test.paused)
				_, err = s.Resume(t.Context(), acme, info.ID.String())
				assert.NilError(t, err)
				assert.Assert(t, !get(t, s, info).Paused)
			})
		})
	}
}

// A broker that dies in the middle of a pause has written down before what it was about to
// do, and one that dies in the middle of a resume what is so as long as that is not done.
func TestABrokerThatDiesInTheMiddleOfAPauseLeavesWhatCanBeResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type crash struct {
			past   instance.Past
			frozen bool
		}
		var crashes []crash
		var frozen bool
		m := &memory{}
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true, OnPause: func(_ context.Context, _ string, pause bool) error {
			crashes = append(crashes, crash{m.past(), frozen})
			frozen = pause
			crashes = append(crashes, crash{m.past(), frozen})
			return nil
		}}
		s := journalled(m, instance.Past{}, cloud)
		info := create(t, s, instance.CreateRequest{})
		served, err := cloud.Provider(t.Context())
		assert.NilError(t, err)
		live, err := served.List(t.Context())
		assert.NilError(t, err)
		_, err = s.Pause(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
		_, err = s.Resume(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
		assert.Assert(t, !m.past().Records[0].Paused)
		s.Shutdown(t.Context())
		assert.Equal(t, len(crashes), 4)
		for at, crash := range crashes {
			frozen := crash.frozen
			cloud := &instancetest.Provider{Name: "cloud", Cloud: true, OnPause: func(_ context.Context, _ string, pause bool) error {
				frozen = pause
				return nil
			}}
			for _, i := range live {
				cloud.Adopt(i)
			}
			later := &memory{}
			assert.NilError(t, later.Write(t.Context(), crash.past.Records[0]))
			s := journalled(later, crash.past, cloud)
			reconciled(t, s, cloud)
			assert.Check(t, get(t, s, info).Paused, "crash %d", at)
			_, err := s.Resume(t.Context(), acme, info.ID.String())
			assert.Check(t, err, "crash %d", at)
			assert.Check(t, !frozen && !get(t, s, info).Paused, "crash %d", at)
			s.Shutdown(t.Context())
		}
	})
}

func TestALackingCapabilityIsNamedWithItsProvider(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		info := create(t, s, instance.CreateRequest{})
		_, err := s.Pause(t.Context(), acme, info.ID.String())
		assert.Error(t, err, "instance "+info.ID.String()+": SB015: the provider first has no pause")
		assert.Equal(t, get(t, s, info).Executions, 0)
	})
}
