package instance_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// listener writes down what it hears. Each call takes as long as delay, of the
// bubble's clock.
type listener struct {
	heard []string
	delay time.Duration
	err   error
}

func (l *listener) hear(ctx context.Context, what string) error {
	select {
	case <-time.After(l.delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	l.heard = append(l.heard, what)
	return l.err
}

func (l *listener) Started(ctx context.Context, where instance.Execution) error {
	return l.hear(ctx, "started "+where.ID+" "+where.Provider+" "+where.InstanceID)
}

func (l *listener) Stdout(ctx context.Context, p []byte) error { return l.hear(ctx, "out "+string(p)) }

func (l *listener) Stderr(ctx context.Context, p []byte) error { return l.hear(ctx, "err "+string(p)) }

func (l *listener) Artifact(ctx context.Context, a sdk.Artifact) error {
	return l.hear(ctx, "artifact "+a.Name)
}

func speaks(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	for _, write := range []func() error{
		func() error { return out.Stdout([]byte("one")) },
		func() error { return out.Stderr([]byte("two")) },
		func() error { return out.Stdout([]byte("three")) },
		func() error { return out.Artifact(sdk.Artifact{Kind: sdk.ArtifactFile, Name: "a.csv"}) },
	} {
		if err := write(); err != nil {
			return sdk.ExecuteResult{}, err
		}
	}
	return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
}

func TestAListenerHearsTheExecutionInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnExecute = speaks
		l := &listener{}
		req := run("python")
		req.ID, req.Session, req.Listener = "mine", "s1", l
		execution, err := s.Run(t.Context(), acme, req)
		assert.NilError(t, err)
		assert.DeepEqual(t, l.heard, []string{"started mine first " + execution.InstanceID, "out one", "err two", "out three", "artifact a.csv"})
		assert.Check(t, cmp.Len(execution.Stdout, 0))

		// The instance is lost, and nothing but that it starts again is heard of it.
		first.Forget()
		l.heard = nil
		after, err := s.Run(t.Context(), acme, req)
		assert.NilError(t, err)
		assert.DeepEqual(t, l.heard, []string{
			"started mine first " + execution.InstanceID, "started mine first " + after.InstanceID, "out one", "err two", "out three", "artifact a.csv",
		})
	})
}

func TestAListenerThatIsSlowDoesNotCountAgainstTheProvider(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnExecute = speaks
		l := &listener{delay: time.Hour}
		req := run("python")
		req.Timeout, req.Listener = time.Second, l
		_, err := s.Run(t.Context(), acme, req)
		assert.NilError(t, err)
		assert.Check(t, cmp.Len(l.heard, 5))
		// But the provider's own time does.
		first.OnExecute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
			result, err := speaks(ctx, req, out)
			<-ctx.Done()
			return result, errors.Join(err, ctx.Err())
		}
		_, err = s.Run(t.Context(), acme, req)
		assertCode(t, err, sdk.CodeUnavailable)
	})
}

func TestAListenerThatFailsEndsTheExecution(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnExecute = speaks
		l := &listener{err: errors.New("gone")}
		req := run("python")
		req.Listener = l
		_, err := s.Run(t.Context(), acme, req)
		assert.ErrorContains(t, err, "gone")
		assert.Check(t, cmp.Len(l.heard, 1))
		assert.Check(t, cmp.Len(first.Executions(), 0))
	})
}

func TestShutdownDoesNotWaitForAListener(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnExecute = speaks
		req := run("python")
		req.Listener = &listener{delay: 24 * time.Hour}
		done := make(chan error, 1)
		go func() {
			_, err := s.Run(t.Context(), acme, req)
			done <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		s.Drain(ctx)
		assert.Equal(t, time.Since(began), 10*time.Second)
		assert.Assert(t, <-done != nil)
	})
}
