package instance_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	acme     = tenant.Tenant{Name: "acme"}
	umbrella = tenant.Tenant{Name: "umbrella"}
	limited  = tenant.Tenant{Name: "limited", Providers: []string{"second"}}
)

// inBubble runs a test with a service whose clock is the bubble's: waiting
// costs nothing and nothing is left to chance. The bubble also proves that
// Shutdown leaves no goroutine.
func inBubble(t *testing.T, test func(t *testing.T, s *instance.Service, first, second *instancetest.Provider)) {
	t.Helper()
	inBubbleWith(t, instancetest.Limits(), test)
}

func inBubbleWith(t *testing.T, limits instance.Limits, test func(t *testing.T, s *instance.Service, first, second *instancetest.Provider)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		first, second := &instancetest.Provider{Name: "first"}, &instancetest.Provider{Name: "second"}
		s := instance.NewService(instance.Options{
			Catalog: instancetest.Catalog{first, second},
			Limits:  limits,
			Logger:  hclog.NewNullLogger(),
		})
		defer s.Shutdown(t.Context())
		synctest.Wait() // tests set fields of the providers, which the service reads as it starts
		test(t, s, first, second)
	})
}

func run(language string) instance.RunRequest {
	return instance.RunRequest{ExecuteRequest: instance.ExecuteRequest{Code: "pass", Language: language}}
}

func assertCode(t *testing.T, err error, code sdk.Code) {
	t.Helper()
	assert.Equal(t, sdk.CodeOf(err), code, "%v", err)
}

func assertField(t *testing.T, err error, field string) {
	t.Helper()
	coded, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok, "%v", err)
	assert.Equal(t, coded.Field, field, "%v", err)
}

func TestRunMakesAFreshInstanceAndDestroysItAfterwards(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
			assert.Check(t, cmp.Len(first.Live(), 1))
			_ = out.Stdout([]byte("hello"))
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		}
		execution, err := s.Run(t.Context(), acme, run("py"))
		assert.NilError(t, err)
		assert.Equal(t, string(execution.Stdout), "hello")
		assert.Equal(t, execution.Provider, "first")
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 0))
		assert.Check(t, cmp.Len(s.List(acme, instance.ListRequest{}).Instances, 0))

		made := first.Created()[0]
		assert.Equal(t, made.Template, "python")
		assert.Equal(t, made.Labels[sdk.LabelTenant], "acme")
		ran := first.Executions()[0]
		assert.Equal(t, ran.Language, sdk.Python)
		assert.Equal(t, ran.Timeout, 30*time.Second)
		assert.Equal(t, ran.OutputLimit, int64(1<<10))
	})
}

func TestKeepDecidesWhatBecomesOfTheInstance(t *testing.T) {
	yes, no := true, false
	for name, test := range map[string]struct {
		session string
		keep    *bool
		live    int
	}{
		"no session: destroyed":               {"", nil, 0},
		"no session, keep: kept":              {"", &yes, 1},
		"a session: kept":                     {"s1", nil, 1},
		"a session and keep false: destroyed": {"s1", &no, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				req := run("python")
				req.Session, req.Keep = test.session, test.keep
				_, err := s.Run(t.Context(), acme, req)
				assert.NilError(t, err)
				synctest.Wait()
				assert.Check(t, cmp.Len(first.Live(), test.live))
				assert.Check(t, cmp.Len(s.List(acme, instance.ListRequest{}).Instances, test.live))
			})
		})
	}
}

func TestConcurrentCreatesOfOneSessionYieldOneInstance(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnCreate = func(context.Context, sdk.CreateRequest) error {
			time.Sleep(time.Second) // of the bubble's clock
			return nil
		}
		var group sync.WaitGroup
		var mu sync.Mutex
		ids, fresh := map[string]bool{}, 0
		for range 20 {
			group.Go(func() {
				info, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
				mu.Lock()
				defer mu.Unlock()
				assert.Check(t, err)
				ids[info.ID.String()] = true
				if created {
					fresh++
				}
			})
		}
		group.Wait()
		assert.Equal(t, len(ids), 1)
		assert.Equal(t, fresh, 1)
		assert.Check(t, cmp.Len(first.Live(), 1))
	})
}

func TestACreationGoesOnWhileAnybodyWaitsForIt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnCreate = func(ctx context.Context, _ sdk.CreateRequest) error {
			select {
			case <-time.After(10 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			_, _, err := s.Create(impatient, acme, instance.CreateRequest{Session: "s1"})
			assert.Check(t, cmp.ErrorIs(err, context.DeadlineExceeded))
		})
		group.Go(func() {
			_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
			assert.Check(t, err)
		})
		group.Wait()
		assert.Check(t, cmp.Len(first.Created(), 1))
		assert.Check(t, cmp.Len(first.Live(), 1))
	})
}

func TestACreationThatNobodyWaitsForLeavesNothingBehind(t *testing.T) {
	for name, onCreate := range map[string]func(context.Context, sdk.CreateRequest) error{
		"the provider gives up": func(ctx context.Context, _ sdk.CreateRequest) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"the provider makes it nevertheless": func(ctx context.Context, _ sdk.CreateRequest) error {
			<-ctx.Done()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				first.OnCreate = onCreate
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := s.Run(ctx, acme, run("python"))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				synctest.Wait()
				assert.Check(t, cmp.Len(first.Live(), 0))
				assert.Check(t, cmp.Len(s.List(acme, instance.ListRequest{}).Instances, 0))
			})
		})
	}
}

func TestAnInstanceThatAppearsAfterACancelledCreationIsDestroyed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnCreate = func(ctx context.Context, req sdk.CreateRequest) error {
			<-ctx.Done()
			// The effect is there although the answer is not.
			first.Adopt(sdk.Instance{ID: "half-made", Labels: req.Labels})
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := s.Create(ctx, acme, instance.CreateRequest{})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 0))
	})
}

func TestACreationThatTheProviderBrokeLeavesNothingBehind(t *testing.T) {
	for name, failure := range map[string]error{
		"the plugin died":       sdk.Errorf(sdk.CodeUnavailable, "%w", wire.ErrPluginGone),
		"the provider panicked": sdk.Errorf(sdk.CodeInternal, "the provider panicked"),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				served, err := first.Provider(t.Context())
				assert.NilError(t, err)
				first.OnCreate = func(ctx context.Context, req sdk.CreateRequest) error {
					first.Adopt(sdk.Instance{ID: "half-made", Labels: req.Labels})
					// The next process is reconciled before this call has ended.
					assert.Check(t, s.Reconcile(ctx, first, served))
					return failure
				}
				_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{})
				assertCode(t, err, sdk.CodeOf(failure))
				synctest.Wait()
				assert.Check(t, cmp.Len(first.Live(), 0))
			})
		})
	}
}

func TestAnInstanceIsNeverGivenOutTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.SameID = "shared"
		mine, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		_, _, err = s.Create(t.Context(), umbrella, instance.CreateRequest{})
		assertCode(t, err, sdk.CodeInternal)
		assert.ErrorContains(t, err, "given out before")
		synctest.Wait()
		// It still is whose it was.
		assert.DeepEqual(t, first.Live(), []string{"shared"})
		_, err = s.Get(t.Context(), acme, mine.ID.String())
		assert.NilError(t, err)
	})
}

func TestCreateFailures(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want sdk.Code
	}{
		"a coded error keeps its code":               {sdk.Errorf(sdk.CodeQuotaExceeded, "full"), sdk.CodeQuotaExceeded},
		"a code that only an execution can have":     {sdk.Errorf(sdk.CodeExecutionTimeout, "?"), sdk.CodeCreateFailed},
		"an error without a code is a bug somewhere": {errors.New("oops"), sdk.CodeInternal},
		"a cancellation that nobody asked for":       {context.Canceled, sdk.CodeCreateFailed},
		"the back end refuses the provider":          {sdk.Errorf(sdk.CodeNotAuthenticated, "bad key"), sdk.CodeUnavailable},
		"nothing that the caller named is missing":   {sdk.Errorf(sdk.CodeNotFound, "no such image"), sdk.CodeUnavailable},
		"what is wrong with the request is told":     {sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "too new"), sdk.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				first.OnCreate = func(context.Context, sdk.CreateRequest) error { return test.err }
				_, err := s.Run(t.Context(), acme, run("python"))
				assertCode(t, err, test.want)
				fault, ok := errors.AsType[*instance.Fault](err)
				assert.Assert(t, ok)
				assert.Equal(t, fault.Provider, "first")
				// The session is free again.
				first.OnCreate = nil
				_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
				assert.NilError(t, err)
			})
		})
	}
}

func TestACreationThatTakesTooLongIsSB004(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnCreate = func(ctx context.Context, _ sdk.CreateRequest) error {
			<-ctx.Done()
			return ctx.Err()
		}
		start := time.Now()
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assertCode(t, err, sdk.CodeCreateFailed)
		assert.Equal(t, time.Since(start), time.Minute)
		assert.ErrorContains(t, err, `provider "first" made no instance within 1m0s`)
	})
}

func TestAProviderThatNeverGetsReady(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnWait = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		start := time.Now()
		_, err := s.Run(t.Context(), acme, run("python"))
		assertCode(t, err, sdk.CodeUnavailable)
		assert.Equal(t, time.Since(start), 54*time.Second, "the rest of the minute would be the creation's")
	})
}

func TestTenantsAreBlindForEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
		assert.NilError(t, err)
		id := info.ID.String()
		missing := "acme:s1:aaaaaaaaaaaaaaaaaaaa"

		calls := map[string]func(who tenant.Tenant, id string) error{
			"get": func(who tenant.Tenant, id string) error { _, err := s.Get(t.Context(), who, id); return err },
			"execute": func(who tenant.Tenant, id string) error {
				_, err := s.Execute(t.Context(), who, id, instance.ExecuteRequest{Language: "python"})
				return err
			},
			"renew":   func(who tenant.Tenant, id string) error { _, err := s.Renew(t.Context(), who, id, 0); return err },
			"destroy": func(who tenant.Tenant, id string) error { return s.Destroy(t.Context(), who, id) },
		}
		for name, call := range calls {
			assertCode(t, call(umbrella, id), sdk.CodeNotFound)
			assert.DeepEqual(t, call(umbrella, id).Error(), call(acme, missing).Error())
			assert.Check(t, call(umbrella, "").Error() == call(umbrella, id).Error(), name)
		}
		assert.Check(t, cmp.Len(s.List(umbrella, instance.ListRequest{}).Instances, 0))
		// The same session name is another session.
		other, created, err := s.Create(t.Context(), umbrella, instance.CreateRequest{Session: "s1"})
		assert.NilError(t, err)
		assert.Assert(t, created)
		assert.Assert(t, other.ID != info.ID)
	})
}

func TestWhichProviderServes(t *testing.T) {
	for name, test := range map[string]struct {
		who   tenant.Tenant
		named string
		want  string
		code  sdk.Code
	}{
		"the active one by default":                                   {acme, "", "first", ""},
		"the one that is named":                                       {acme, "second", "second", ""},
		"an unknown one is the caller's mistake":                      {acme, "third", "", sdk.CodeInvalidRequest},
		"the first allowed one when the active is not":                {limited, "", "second", ""},
		"one that is not allowed":                                     {limited, "first", "", sdk.CodeNotAllowed},
		"none when the allow-list names only what is no longer there": {tenant.Tenant{Name: "x", Providers: []string{"old"}}, "", "", sdk.CodeNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
				info, _, err := s.Create(t.Context(), test.who, instance.CreateRequest{Provider: test.named})
				assertCode(t, err, test.code)
				assert.Equal(t, info.Provider, test.want)
				if test.named != "" && err != nil {
					assertField(t, err, "provider")
				}
			})
		})
	}
}

func TestASessionStaysWhereItIs(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, second *instancetest.Provider) {
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1", Provider: "second"})
		assert.NilError(t, err)
		req := run("python")
		req.Session = "s1"
		execution, err := s.Run(t.Context(), acme, req)
		assert.NilError(t, err)
		assert.Equal(t, execution.Provider, "second")
		assert.Check(t, cmp.Len(second.Created(), 1))
	})
}

func TestTemplates(t *testing.T) {
	for name, test := range map[string]struct {
		req   instance.CreateRequest
		want  string
		field string
	}{
		"the first by default":               {instance.CreateRequest{}, "python", ""},
		"the one named":                      {instance.CreateRequest{Template: "nodejs"}, "nodejs", ""},
		"the one for the language":           {instance.CreateRequest{Language: "JS"}, "nodejs", ""},
		"the one for the language's alias":   {instance.CreateRequest{Language: "sh"}, "python", ""},
		"the named one beats the language's": {instance.CreateRequest{Template: "python", Language: "js"}, "python", ""},
		"an unknown one":                     {instance.CreateRequest{Template: "ruby"}, "", "template"},
		"an unknown language":                {instance.CreateRequest{Language: "cobol"}, "", "language"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
				info, _, err := s.Create(t.Context(), acme, test.req)
				assert.Equal(t, info.Template, test.want)
				if test.field != "" {
					assertCode(t, err, sdk.CodeInvalidRequest)
					assertField(t, err, test.field)
				}
			})
		})
	}
}

func TestASessionWithAnotherTemplateIsAConflict(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1", Template: "python"})
		assert.NilError(t, err)
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1", Template: "nodejs"})
		assertCode(t, err, sdk.CodeConflict)
		_, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1", Language: "js"})
		assert.NilError(t, err)
		assert.Assert(t, !created)
	})
}

func TestASessionWithAnotherLifetimeIsAConflict(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		first := instance.CreateRequest{Session: "s1", TTL: time.Minute, Idle: 30 * time.Second}
		made, _, err := s.Create(t.Context(), acme, first)
		assert.NilError(t, err)
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1", TTL: time.Hour})
		assertCode(t, err, sdk.CodeConflict)
		assertField(t, err, "ttl")
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1", Idle: time.Minute})
		assertCode(t, err, sdk.CodeConflict)
		assertField(t, err, "idle")
		for _, same := range []instance.CreateRequest{first, {Session: "s1"}} {
			again, created, err := s.Create(t.Context(), acme, same)
			assert.NilError(t, err)
			assert.Assert(t, !created)
			assert.Equal(t, again.ID, made.ID)
		}
	})
}

func TestRequestsThatCannotBeTakenOn(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*instance.RunRequest)
		field  string
	}{
		"a timeout above the maximum":   {func(r *instance.RunRequest) { r.Timeout = 10*time.Minute + 1 }, "timeout"},
		"a negative timeout":            {func(r *instance.RunRequest) { r.Timeout = -1 }, "timeout"},
		"no language":                   {func(r *instance.RunRequest) { r.Language = "" }, "language"},
		"arguments for bash":            {func(r *instance.RunRequest) { r.Language, r.Arguments = "sh", []byte(`{}`) }, "arguments"},
		"a session with a colon":        {func(r *instance.RunRequest) { r.Session = "a:b" }, "session_id"},
		"a session that is too long":    {func(r *instance.RunRequest) { r.Session = string(make([]byte, 65)) }, "session_id"},
		"a variable without a name":     {func(r *instance.RunRequest) { r.Env = map[string]string{"": "x"} }, "env"},
		"a variable with an equal sign": {func(r *instance.RunRequest) { r.Env = map[string]string{"A=B": "x"} }, "env"},
		"a NUL in a variable":           {func(r *instance.RunRequest) { r.Env = map[string]string{"A": "s3cret\x00"} }, "env.A"},
		"a variable that is too long":   {func(r *instance.RunRequest) { r.Env = map[string]string{"A": string(make([]byte, 1<<16))} }, "env.A"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				req := run("python")
				test.change(&req)
				_, err := s.Run(t.Context(), acme, req)
				assertCode(t, err, sdk.CodeInvalidRequest)
				assertField(t, err, test.field)
				assert.Check(t, cmp.Len(first.Created(), 0))
			})
		})
	}
}
