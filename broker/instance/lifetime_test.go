package instance_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAnInstanceIsReapedWhenItsTimeIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1", TTL: time.Minute})
		assert.NilError(t, err)
		time.Sleep(59 * time.Second) // of the bubble's clock, here and below
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 1))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 0))
		assert.Check(t, cmp.Len(s.List(acme, instance.ListRequest{}).Instances, 0))
	})
}

func TestUseProlongsAnInstance(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		req := run("python")
		req.Session = "s1"
		for range 10 {
			_, err := s.Run(t.Context(), acme, req)
			assert.NilError(t, err)
			time.Sleep(4 * time.Minute)
		}
		assert.Check(t, cmp.Len(first.Created(), 1))
	})
}

func TestAnInstanceIsNeverReapedWhileItRunsCode(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{TTL: time.Second})
		assert.NilError(t, err)
		first.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
			time.Sleep(20 * time.Second)
			assert.Check(t, cmp.Len(first.Live(), 1))
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		}
		_, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Language: "python"})
		assert.NilError(t, err)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 0))
	})
}

func TestADestructionThatFailsIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		var attempts atomic.Int32
		first.OnDestroy = func(context.Context, string) error {
			if attempts.Add(1) == 1 {
				return sdk.Errorf(sdk.CodeConnectionFailed, "no route")
			}
			return nil
		}
		assertCode(t, s.Destroy(t.Context(), acme, info.ID.String()), sdk.CodeConnectionFailed)
		_, err = s.Get(t.Context(), acme, info.ID.String())
		assertCode(t, err, sdk.CodeNotFound)

		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 0))
		assertCode(t, s.Destroy(t.Context(), acme, info.ID.String()), sdk.CodeNotFound)
	})
}

func TestReconcile(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, second *instancetest.Provider) {
		kept, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "kept"})
		assert.NilError(t, err)
		survivor := first.Live()[0]
		lost, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "lost"})
		assert.NilError(t, err)
		elsewhere, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "elsewhere", Provider: "second"})
		assert.NilError(t, err)

		first.Forget()
		first.Adopt(sdk.Instance{ID: survivor, Labels: map[string]string{sdk.LabelInstance: kept.ID.Instance}})
		first.Adopt(sdk.Instance{ID: "orphan", Labels: map[string]string{sdk.LabelInstance: "zzzzzzzzzzzzzzzzzzzz"}})
		first.Adopt(sdk.Instance{ID: "unlabelled"})

		served, err := first.Provider(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, s.Reconcile(t.Context(), first, served))
		assert.DeepEqual(t, first.Live(), []string{survivor})
		_, err = s.Get(t.Context(), acme, kept.ID.String())
		assert.NilError(t, err)
		_, err = s.Get(t.Context(), acme, lost.ID.String())
		assertCode(t, err, sdk.CodeNotFound)
		_, err = s.Get(t.Context(), acme, elsewhere.ID.String())
		assert.NilError(t, err)
		assert.Check(t, cmp.Len(second.Live(), 1))
	})
}

func TestReconcileFailsWithTheList(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		first.OnList = func(context.Context) error { return errors.New("oops") }
		served, err := first.Provider(t.Context())
		assert.NilError(t, err)
		assert.ErrorContains(t, s.Reconcile(t.Context(), first, served), `list the instances of provider "first": oops`)
		_, err = s.Get(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
	})
}

func TestReconcileSparesWhatIsBeingMade(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		served, err := first.Provider(t.Context())
		assert.NilError(t, err)
		first.OnCreate = func(ctx context.Context, req sdk.CreateRequest) error {
			// The provider has it already; the broker does not know yet.
			first.Adopt(sdk.Instance{ID: "fake-" + req.Labels[sdk.LabelInstance], Labels: req.Labels})
			assert.Check(t, s.Reconcile(ctx, first, served))
			assert.Check(t, cmp.Len(first.Live(), 1))
			return nil
		}
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		_, err = s.Get(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
	})
}

func TestShutdownLetsExecutionsFinishAndDestroysEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "idle"})
		assert.NilError(t, err)
		first.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			select {
			case <-time.After(10 * time.Second):
				return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
			case <-ctx.Done():
				return sdk.ExecuteResult{}, ctx.Err()
			}
		}
		var group sync.WaitGroup
		group.Go(func() {
			execution, err := s.Run(t.Context(), acme, run("python"))
			assert.Check(t, err)
			assert.Check(t, cmp.Equal(execution.Result.Status, sdk.StatusSucceeded))
		})
		synctest.Wait()
		bound, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		group.Go(func() { s.Shutdown(bound) })
		synctest.Wait()
		assert.Assert(t, s.Draining())
		_, err = s.Run(t.Context(), acme, run("python"))
		assertCode(t, err, sdk.CodeUnavailable)
		assert.ErrorContains(t, err, "shutting down")
		group.Wait()
		assert.Check(t, cmp.Len(first.Live(), 0))
	})
}

func TestShutdownCancelsWhatTakesTooLong(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			<-ctx.Done()
			return sdk.ExecuteResult{}, ctx.Err()
		}
		first.OnDestroy = func(ctx context.Context, _ string) error { // and is stubborn besides
			<-ctx.Done()
			return ctx.Err()
		}
		var group sync.WaitGroup
		group.Go(func() {
			_, err := s.Run(t.Context(), acme, run("python"))
			assertCode(t, err, sdk.CodeUnavailable)
		})
		synctest.Wait()
		bound, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		s.Shutdown(bound)
		group.Wait()
		assert.Equal(t, time.Since(start), 13*time.Second) // 3 to drain, 10 to destroy
	})
}

func TestShutdownWaitsForNoDestructionThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		first.OnDestroy = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		var group sync.WaitGroup
		group.Go(func() {
			err := s.Destroy(t.Context(), acme, info.ID.String())
			assertCode(t, err, sdk.CodeUnavailable)
			assert.ErrorContains(t, err, "shutting down")
		})
		synctest.Wait()
		bound, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		s.Shutdown(bound)
		group.Wait()
		assert.Equal(t, time.Since(start), 13*time.Second) // 3 to drain, 10 to destroy
	})
}
