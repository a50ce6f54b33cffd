package instance_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestErrorsOfAnExecution(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		code   sdk.Code
		status sdk.Status
	}{
		"a coded error keeps its code":      {sdk.Errorf(sdk.CodeConnectionFailed, "no route"), sdk.CodeConnectionFailed, ""},
		"an error without a code":           {errors.New("oops"), sdk.CodeInternal, ""},
		"a cancellation that nobody asked":  {context.Canceled, sdk.CodeUnavailable, ""},
		"a timeout as an error is a result": {sdk.Errorf(sdk.CodeExecutionTimeout, "late"), "", sdk.StatusTimeout},
		"out of memory is a result":         {sdk.Errorf(sdk.CodeOutOfMemory, "full"), "", sdk.StatusOutOfMemory},
		"a block by the policy is a result": {sdk.Errorf(sdk.CodeBlocked, "no"), "", sdk.StatusBlocked},
		"the back end refuses the provider": {sdk.Errorf(sdk.CodeNotAuthenticated, "bad key"), sdk.CodeUnavailable, ""},
		"the back end forbids it":           {sdk.Errorf(sdk.CodeNotAllowed, "bad role"), sdk.CodeUnavailable, ""},
		"a conflict there":                  {sdk.Errorf(sdk.CodeConflict, "busy"), sdk.CodeUnavailable, ""},
		"what is wrong with the request":    {sdk.FieldErrorf(sdk.CodeInvalidRequest, "code", "no"), sdk.CodeInvalidRequest, ""},
		"the instance ended meanwhile":      {sdk.Errorf(sdk.CodeNotFound, "?"), sdk.CodeUnavailable, ""},
		"the instance was gone before":      {&sdk.Error{Code: sdk.CodeNotFound, NoEffect: true}, sdk.CodeNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				first.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					_ = out.Stdout([]byte("so far"))
					return sdk.ExecuteResult{}, test.err
				}
				execution, err := s.Run(t.Context(), acme, run("python"))
				assertCode(t, err, test.code)
				assert.Equal(t, execution.Result.Status, test.status)
				if test.status != "" {
					assert.Equal(t, string(execution.Stdout), "so far")
				}
				synctest.Wait()
				assert.Check(t, cmp.Len(s.List(acme, instance.ListRequest{}).Instances, 0))
			})
		})
	}
}

func TestCodeThatMayHaveRunIsNotRunAgain(t *testing.T) {
	for name, test := range map[string]struct {
		gone *sdk.Error
		runs int
	}{
		"the instance ended meanwhile": {&sdk.Error{Code: sdk.CodeNotFound, Message: "gone"}, 1},
		"it was gone before":           {&sdk.Error{Code: sdk.CodeNotFound, Message: "gone", NoEffect: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				runs := 0
				first.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
					if runs++; runs == 1 {
						return sdk.ExecuteResult{}, test.gone
					}
					return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
				}
				before, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
				assert.NilError(t, err)
				req := run("python")
				req.Session = "s1"
				_, err = s.Run(t.Context(), acme, req)
				assert.Equal(t, runs, test.runs)
				assert.Equal(t, err == nil, test.runs == 2, "%v", err)
				// In either case the session goes on with another one.
				after, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
				assert.NilError(t, err)
				assert.Check(t, after.ID != before.ID)
			})
		})
	}
}

func TestAnExecutionThatTheAuditLogRefusedHasNotBegun(t *testing.T) {
	log, err := audit.Open(audit.Options{Dir: filepath.Join(scratch.Dir(t), "audit"), Logger: hclog.NewNullLogger()})
	assert.NilError(t, err)
	assert.NilError(t, log.Close(t.Context()))
	_, refusal := log.Begin(t.Context(), audit.Effect{})
	assert.Assert(t, effect.OfRecorder(refusal))
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		for refused, begun := range map[error]bool{refusal: false, sdk.Errorf(sdk.CodeUnavailable, "%w", effect.ErrUnrecorded): true} {
			first.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
				return sdk.ExecuteResult{}, refused
			}
			_, err := s.Run(t.Context(), acme, run("python"))
			fault, ok := errors.AsType[*instance.Fault](err)
			assert.Assert(t, ok, "%v", err)
			assert.Equal(t, fault.Begun, begun, "%v", err)
		}
	})
}

func TestAProviderThatDoesNotAnswerIsSB009(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			<-ctx.Done()
			return sdk.ExecuteResult{}, ctx.Err()
		}
		req := run("python")
		req.Timeout = 2 * time.Second
		start := time.Now()
		_, err := s.Run(t.Context(), acme, req)
		assertCode(t, err, sdk.CodeUnavailable)
		assert.ErrorContains(t, err, `provider "first" gave no answer within 7s`)
		assert.Equal(t, time.Since(start), 7*time.Second)
	})
}

func TestACallerThatGoesAwayCancelsItsExecution(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		ctx, leave := context.WithCancel(t.Context())
		first.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			leave()
			<-ctx.Done()
			return sdk.ExecuteResult{}, ctx.Err()
		}
		_, err := s.Run(ctx, acme, run("python"))
		assert.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 0))
	})
}

func TestASessionWhoseInstanceIsLostGetsANewOne(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		req := run("python")
		req.Session = "s1"
		before, err := s.Run(t.Context(), acme, req)
		assert.NilError(t, err)
		first.Forget()
		after, err := s.Run(t.Context(), acme, req)
		assert.NilError(t, err)
		assert.Assert(t, before.InstanceID != after.InstanceID)

		first.Forget()
		_, err = s.Execute(t.Context(), acme, after.InstanceID, req.ExecuteRequest)
		assertCode(t, err, sdk.CodeNotFound)
		_, err = s.Get(t.Context(), acme, after.InstanceID)
		assertCode(t, err, sdk.CodeNotFound)
	})
}

func TestExecutionsRunSideBySideInOneInstance(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
		assert.NilError(t, err)
		both := make(chan struct{}, 2)
		first.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
			both <- struct{}{}
			for len(both) < 2 {
				time.Sleep(time.Millisecond) // of the bubble's clock
			}
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		}
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				_, err := s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Language: "python"})
				assert.Check(t, err)
			})
		}
		group.Wait()
	})
}

func TestAnInstanceThatIsNotKeptOutlivesTheOtherExecutionsInIt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		long, short, no := run("python"), run("python"), false
		long.Session, long.Code = "s1", "long"
		short.Session, short.Keep = "s1", &no
		first.OnExecute = func(_ context.Context, req sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			if req.Code == "long" {
				time.Sleep(10 * time.Second) // of the bubble's clock
				assert.Check(t, cmp.Len(first.Created(), 2))
			}
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		}
		var group sync.WaitGroup
		var before string
		group.Go(func() {
			execution, err := s.Run(t.Context(), acme, long)
			assert.Check(t, err)
			assert.Check(t, cmp.Equal(execution.Result.Status, sdk.StatusSucceeded))
			before = execution.InstanceID
		})
		synctest.Wait()
		_, err := s.Run(t.Context(), acme, short)
		assert.NilError(t, err)
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 1))
		assert.Check(t, cmp.Len(s.List(acme, instance.ListRequest{}).Instances, 0))
		// The session begins anew meanwhile.
		after, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
		assert.NilError(t, err)
		group.Wait()
		synctest.Wait()
		assert.Assert(t, after.ID.String() != before)
		assert.DeepEqual(t, first.Live(), []string{"fake-" + after.ID.Instance})
	})
}

func TestDestroyAnswersRunningExecutionsAsCancelled(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
		assert.NilError(t, err)
		destroyed := make(chan struct{})
		first.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
			_ = out.Stdout([]byte("so far"))
			<-destroyed
			return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeNotFound, "gone")
		}
		first.OnDestroy = func(context.Context, string) error { close(destroyed); return nil }
		var group sync.WaitGroup
		group.Go(func() {
			execution, err := s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Language: "python"})
			assert.Check(t, err)
			assert.Check(t, cmp.Equal(execution.Result.Status, sdk.StatusCancelled))
			assert.Check(t, cmp.Equal(string(execution.Stdout), "so far"))
		})
		synctest.Wait()
		assert.NilError(t, s.Destroy(t.Context(), acme, info.ID.String()))
		group.Wait()
		assertCode(t, s.Destroy(t.Context(), acme, info.ID.String()), sdk.CodeNotFound)
	})
}

func TestOnlyItsTenantsDestroyMakesAnExecutionCancelled(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code sdk.Code
	}{
		"the plugin died":                   {sdk.Errorf(sdk.CodeUnavailable, "%w", wire.ErrPluginGone), sdk.CodeUnavailable},
		"the provider ended the instance":   {sdk.Errorf(sdk.CodeNotFound, "expired"), sdk.CodeUnavailable},
		"the provider's back end went away": {sdk.Errorf(sdk.CodeConnectionFailed, "no route"), sdk.CodeConnectionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
				assert.NilError(t, err)
				served, err := first.Provider(t.Context())
				assert.NilError(t, err)
				first.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
					// The next process is there before this call has ended.
					first.Forget()
					assert.Check(t, s.Reconcile(ctx, first, served))
					return sdk.ExecuteResult{}, test.err
				}
				_, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Language: "python"})
				assertCode(t, err, test.code)
			})
		})
	}
}
