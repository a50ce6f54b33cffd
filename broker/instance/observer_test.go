package instance_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// observed takes down what it is told, in words.
type observed struct {
	mu             sync.Mutex
	told, admitted []string
	times          []time.Duration // of what was told
}

func (o *observed) tell(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = append(o.told, fmt.Sprintf(format, args...))
}

func (o *observed) Executed(_ context.Context, e instance.ExecutionOutcome) {
	o.tell("executed %s %s %s %s", e.Provider, e.Language, e.Status, e.Code)
	o.took(e.Took)
}

func (o *observed) Created(_ context.Context, provider string, outcome instance.CreateOutcome, code sdk.Code, took time.Duration) {
	o.tell("created %s %s %s", provider, outcome, code)
	o.took(took)
}

func (o *observed) Admitted(_ context.Context, outcome instance.AdmitOutcome, waited time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.admitted = append(o.admitted, fmt.Sprintf("%s %s", outcome, waited))
}

func (o *observed) took(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.times = append(o.times, d)
}

func (o *observed) FailedOver(from, to string, code sdk.Code) {
	o.tell("failed over %s %s %s", from, to, code)
}

// since returns what was told since the last call.
func (o *observed) since() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	told := o.told
	o.told = nil
	return told
}

func TestWhatBecomesOfTheWorkIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, o := &instancetest.Provider{Name: "first", Cloud: true}, &instancetest.Provider{Name: "second"}, &observed{}
		s := instance.NewService(instance.Options{
			Catalog: bearing(first, second), Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(), Observer: o,
		})
		defer s.Shutdown(t.Context())
		var answer sdk.ExecuteResult
		var fails error
		first.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) { return answer, fails }
		use := func(ctx context.Context) { _, _ = s.Run(ctx, acme, run("python")) }

		answer = sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 3}
		use(t.Context())
		assert.DeepEqual(t, o.since(), []string{"created first made ", "executed first python failed "})
		answer = sdk.ExecuteResult{Status: sdk.StatusTimeout}
		use(t.Context())
		assert.DeepEqual(t, o.since()[1:], []string{"executed first python timeout SB005"})
		fails = sdk.Errorf(sdk.CodeBlocked, "the policy says no")
		use(t.Context())
		assert.DeepEqual(t, o.since()[1:], []string{"executed first python blocked SB007"})
		fails = sdk.Errorf(sdk.CodeConnectionFailed, "it is away")
		use(t.Context())
		assert.DeepEqual(t, o.since()[1:], []string{"executed first python error SB003"})
		ctx, leave := context.WithCancel(t.Context())
		first.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			leave()
			<-ctx.Done()
			return sdk.ExecuteResult{}, ctx.Err()
		}
		use(ctx)
		assert.DeepEqual(t, o.since()[1:], []string{"executed first python cancelled "})

		for _, test := range []struct {
			err  error
			told string
		}{
			{sdk.Errorf(sdk.CodeQuotaExceeded, "full"), "created first refused SB008"},
			{sdk.Errorf(sdk.CodeConnectionFailed, "away"), "created first unclear SB003"},
			{context.DeadlineExceeded, "created first unclear SB004"},
		} {
			first.OnCreate = func(context.Context, sdk.CreateRequest) error { return test.err }
			_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
			assert.NilError(t, err)
			told := o.since()
			assert.Equal(t, told[0], test.told)
			assert.Equal(t, told[1], "created second made ")
			assert.Assert(t, slices.ContainsFunc(told, func(line string) bool {
				return line == "failed over first second "+string(sdk.CodeOf(test.err)) || line == "failed over first second SB004"
			}), "%q", told)
		}
		time.Sleep(time.Minute)
	})
}

func TestTimesOfTheWorkAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, o := &instancetest.Provider{Name: "first"}, &observed{}
		keeper, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{MaxWaiting: 10, Tenants: map[string]quota.Limits{acme.Name: {Concurrent: 1}}}})
		assert.NilError(t, err)
		defer keeper.Close()
		limits := instancetest.Limits()
		limits.MaxWait = time.Minute
		s := instance.NewService(instance.Options{
			Catalog: bearing(first), Limits: limits, Logger: hclog.NewNullLogger(), Observer: o, Quotas: keeper,
		})
		defer s.Shutdown(t.Context())
		first.OnCreate = func(context.Context, sdk.CreateRequest) error { time.Sleep(2 * time.Second); return nil }
		first.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
			time.Sleep(3 * time.Second)
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		}
		one, done := run("python"), make(chan error)
		go func() {
			_, err := s.Run(t.Context(), acme, one)
			done <- err
		}()
		synctest.Wait()
		two := run("python")
		two.Wait = time.Minute
		_, err = s.Run(t.Context(), acme, two)
		assert.NilError(t, err)
		assert.NilError(t, <-done)
		_, err = s.Run(t.Context(), acme, one)
		assert.NilError(t, err)
		assert.DeepEqual(t, o.admitted, []string{"granted 0s", "granted 5s", "granted 0s"})
		assert.DeepEqual(t, o.times[:4], []time.Duration{2 * time.Second, 3 * time.Second, 2 * time.Second, 3 * time.Second})

		go func() {
			_, err := s.Run(t.Context(), acme, one)
			done <- err
		}()
		synctest.Wait()
		_, err = s.Run(t.Context(), acme, one) // which does not wait
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_, err = s.Run(ctx, acme, two)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NilError(t, <-done)
		assert.DeepEqual(t, o.admitted[3:], []string{"granted 0s", "refused 0s", "left 1s"})
		time.Sleep(time.Minute)
	})
}
