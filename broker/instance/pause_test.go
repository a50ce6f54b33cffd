package instance_test

import (
	"context"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
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
		going <- sdk.Errorf(sdk.CodeUnavailable, "stuck")
		assertCode(t, <-done, sdk.CodeUnavailable)
		assert.Assert(t, !get(t, s, info).Paused)
		_, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Code: "1", Language: "python"})
		assert.NilError(t, err)
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
