package provider

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// start runs code that prints and goes on, and returns once it runs.
func start(t *testing.T, p testProvider, id string) (result <-chan outcome, failure <-chan error) {
	t.Helper()
	results, failures := make(chan outcome, 1), make(chan error, 1)
	out := newAnnouncer()
	go func() {
		result, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "echo up; sleep 1000", Timeout: time.Minute, OutputLimit: 1 << 20}, out)
		results <- outcome{ExecuteResult: result}
		failures <- err
	}()
	<-out.written
	return results, failures
}

func TestDestroyEndsWhatRunsAndMayBeRepeated(t *testing.T) {
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	result, failure := start(t, p, id)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { assert.Check(t, p.Destroy(t.Context(), id)) })
	}
	wg.Wait()
	assert.Equal(t, (<-result).Status, sdk.StatusCancelled)
	assert.NilError(t, <-failure)
	_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "true"})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
}

func TestCloseEndsWhatRunsAndWhatIsBeingMade(t *testing.T) {
	for range 3 {
		p := newProvider(t, map[string]any{"pool_size": 2, "max_sandboxes": 8})
		result, failure := start(t, p, create(t, p, templateBash))
		var wg sync.WaitGroup
		for i, template := range []string{templatePython, templateBash, templateNode, templateBash, templatePython} {
			wg.Go(func() {
				// Some expire meanwhile; the others are there when it is closed.
				ttl := time.Duration(i%2) * 100 * time.Millisecond
				if _, err := p.Create(t.Context(), sdk.CreateRequest{Template: template, TTL: ttl}); err != nil {
					// The latter is said of a provider that has been closed.
					assert.Check(t, is.Contains([]sdk.Code{sdk.CodeUnavailable, sdk.CodeNotInitialized}, sdk.CodeOf(err)), "%v", err)
				}
			})
		}
		wg.Go(func() {
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if p.pool.Stats().InUse > 2 {
					return poll.Success()
				}
				return poll.Continue("waiting for some to be made")
			}, poll.WithDelay(time.Millisecond), poll.WithTimeout(2*time.Minute))
			assert.Check(t, p.Close(t.Context()))
		})
		wg.Wait()
		assert.Equal(t, p.pool.Stats().InUse, 0)
		assert.Equal(t, (<-result).Status, sdk.StatusCancelled)
		assert.NilError(t, <-failure)
		nothingLeft(t, p.dir, p.brokerID)
	}
}

// A context may end at any step of an execution.
func TestGivingUpAtAnyMomentLeavesTheInstanceUsable(t *testing.T) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	for patience := 100 * time.Microsecond; patience < 200*time.Millisecond; patience = patience * 3 / 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		var r recorder
		result, err := p.Execute(ctx, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print(1)", Timeout: time.Minute, OutputLimit: 1 << 20}, &r)
		cancel()
		if err != nil {
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		} else {
			assert.Equal(t, result.Status, sdk.StatusSucceeded)
		}
	}
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "echo alive; ls /proc | grep -c '^[0-9]'"})
	assert.NilError(t, err)
	assert.Check(t, strings.HasPrefix(got.stdout, "alive\n"))
}

// watchedContext tells when somebody begins to wait for its end.
type watchedContext struct {
	context.Context
	once   sync.Once
	waited chan struct{}
}

func (c *watchedContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waited) })
	return c.Context.Done()
}

func TestGivingUpACreationSpoilsItForNobodyElse(t *testing.T) {
	p := newProvider(t, map[string]any{"pool_size": 0, "max_sandboxes": 1})
	kept := create(t, p, templateBash) // so that the next has to wait
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	ask := func(ctx context.Context, done chan<- error) {
		_, err := p.Create(ctx, sdk.CreateRequest{Template: templateBash, IdempotencyKey: "k"})
		done <- err
	}
	go ask(ctx, first)
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(p.pool.Stats().Waiting, 1)) }, poll.WithTimeout(2*time.Minute))
	waits := &watchedContext{Context: t.Context(), waited: make(chan struct{})}
	go ask(waits, second)
	<-waits.waited
	cancel()
	assert.ErrorIs(t, <-first, context.Canceled)
	assert.NilError(t, p.Destroy(t.Context(), kept))
	assert.NilError(t, <-second)
}

// gate is an output that takes its first bytes when it is opened.
type gate struct {
	open chan struct{}
	recorder
}

func (g *gate) Stdout(p []byte) error {
	<-g.open
	return g.recorder.Stdout(p)
}

func TestASlowReaderDoesNotCostTheInstance(t *testing.T) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	out := &gate{open: make(chan struct{})}
	result, failure := make(chan sdk.ExecuteResult, 1), make(chan error, 1)
	go func() {
		r, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "while True: print('x' * 1000)", Timeout: time.Second, OutputLimit: 10 << 20}, out)
		result <- r
		failure <- err
	}()
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "sleep 3; echo slept"})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "slept\n")
	close(out.open)
	assert.Equal(t, (<-result).Status, sdk.StatusTimeout)
	assert.NilError(t, <-failure)
	got, err = execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "echo alive"})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "alive\n")
}

func TestAnInstanceSaysHowLargeItIs(t *testing.T) {
	p := &Provider{settings: settings{Runtime: runtimeRunsc, CPUs: 0.5, MemoryMB: 256, WorkspaceMB: 64}}
	assert.DeepEqual(t, factsOf(p, p.settings.limits()), map[string]string{"runtime": "runsc", "cpus": "0.5", "memory_mb": "256", "disk_mb": "128"})
}
