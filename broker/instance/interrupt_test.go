package instance_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// endless runs until its context ends.
func endless(ctx context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	_ = out.Stdout([]byte("so far"))
	<-ctx.Done()
	return sdk.ExecuteResult{}, ctx.Err()
}

func TestAnInterruptedExecutionIsCancelled(t *testing.T) {
	for name, test := range map[string]struct {
		interrupt func(first *instancetest.Provider)
		exitCode  int
		after     time.Duration
	}{
		"by a provider that can": {func(first *instancetest.Provider) {
			told := make(chan struct{})
			first.OnInterrupt = func(context.Context, string, string) error { close(told); return nil }
			first.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				_ = out.Stdout([]byte("so far"))
				<-told
				return sdk.ExecuteResult{Status: sdk.StatusCancelled, ExitCode: 130}, nil
			}
		}, 130, 0},
		"by a provider that learns of the execution later": {func(first *instancetest.Provider) {
			told, asked := make(chan struct{}), 0
			first.OnInterrupt = func(context.Context, string, string) error {
				if asked++; asked < 4 {
					return sdk.Errorf(sdk.CodeNotFound, "no such execution")
				}
				close(told)
				return nil
			}
			first.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				_ = out.Stdout([]byte("so far"))
				<-told
				return sdk.ExecuteResult{Status: sdk.StatusCancelled, ExitCode: 130}, nil
			}
		}, 130, 60 * time.Millisecond},
		"by the broker, of a provider that cannot": {func(first *instancetest.Provider) { first.OnExecute = endless }, 137, 0},
		"by the broker, of a provider that fails at it": {func(first *instancetest.Provider) {
			first.OnInterrupt = func(context.Context, string, string) error { return errors.New("oops") }
			first.OnExecute = endless
		}, 137, 0},
		"by the broker, of a provider that does not keep its word": {func(first *instancetest.Provider) {
			first.OnInterrupt = func(context.Context, string, string) error { return nil }
			first.OnExecute = endless
		}, 137, 6 * time.Second},
		"by the broker, of a provider that never knows it": {func(first *instancetest.Provider) {
			first.OnInterrupt = func(context.Context, string, string) error { return sdk.Errorf(sdk.CodeNotFound, "no such execution") }
			first.OnExecute = endless
		}, 137, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				test.interrupt(first)
				info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
				assert.NilError(t, err)
				var group sync.WaitGroup
				var began time.Time
				group.Go(func() {
					execution, err := s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{ID: "mine", Language: "python"})
					assert.Check(t, err)
					assert.Check(t, cmp.Equal(execution.ID, "mine"))
					assert.Check(t, cmp.Equal(execution.Result.Status, sdk.StatusCancelled))
					assert.Check(t, cmp.Equal(execution.Result.ExitCode, test.exitCode))
					assert.Check(t, cmp.Equal(string(execution.Stdout), "so far"))
					assert.Check(t, cmp.Equal(time.Since(began), test.after))
				})
				synctest.Wait()
				began = time.Now()
				assert.NilError(t, s.Interrupt(t.Context(), acme, info.ID.String(), "mine"))
				group.Wait()
				// The instance lives on, and the name is free again.
				assertCode(t, s.Interrupt(t.Context(), acme, info.ID.String(), "mine"), sdk.CodeNotFound)
				first.OnExecute = nil
				_, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{ID: "mine", Language: "python"})
				assert.NilError(t, err)
			})
		})
	}
}

func TestWhatCannotBeInterrupted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnExecute = endless
		one, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
		assert.NilError(t, err)
		other, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s2"})
		assert.NilError(t, err)
		var group sync.WaitGroup
		group.Go(func() {
			_, err := s.Execute(t.Context(), acme, one.ID.String(), instance.ExecuteRequest{ID: "mine", Language: "python"})
			assert.Check(t, err)
		})
		synctest.Wait()
		for name, err := range map[string]error{
			"an execution that there is not": s.Interrupt(t.Context(), acme, one.ID.String(), "other"),
			"one of another instance":        s.Interrupt(t.Context(), acme, other.ID.String(), "mine"),
			"one of another tenant":          s.Interrupt(t.Context(), umbrella, one.ID.String(), "mine"),
			"one of no instance":             s.Interrupt(t.Context(), acme, "acme:s1:aaaaaaaaaaaaaaaaaaaa", "mine"),
		} {
			assert.Check(t, cmp.Equal(sdk.CodeOf(err), sdk.CodeNotFound), name)
			assert.Check(t, cmp.ErrorContains(err, "no such execution is in progress in this instance"), name)
		}
		assert.NilError(t, s.Interrupt(t.Context(), acme, one.ID.String(), "mine"))
		group.Wait()
	})
}

func TestANameIsOneExecutionsAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnExecute = endless
		req := run("python")
		req.ID, req.Session = "mine", "s1"
		var group sync.WaitGroup
		group.Go(func() {
			_, err := s.Run(t.Context(), acme, req)
			assert.Check(t, err)
		})
		synctest.Wait()
		_, err := s.Run(t.Context(), acme, req)
		assertCode(t, err, sdk.CodeConflict)
		again := req
		again.Session = ""
		_, err = s.Run(t.Context(), acme, again)
		assertCode(t, err, sdk.CodeConflict)
		assert.Check(t, cmp.Len(first.Created(), 1), "nothing is made for what is refused")
		for _, bad := range []string{"a b", "a/b", strings.Repeat("a", 65)} {
			again.ID = bad
			_, err = s.Run(t.Context(), acme, again)
			assertCode(t, err, sdk.CodeInvalidRequest)
		}
		group.Go(func() {
			_, err := s.Run(t.Context(), umbrella, req) // has names of its own
			assert.Check(t, err)
		})
		synctest.Wait()
		for _, who := range []tenant.Tenant{acme, umbrella} {
			assert.NilError(t, s.Interrupt(t.Context(), who, s.List(who, instance.ListRequest{}).Instances[0].ID.String(), "mine"))
		}
		group.Wait()
	})
}
