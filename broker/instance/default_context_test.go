package instance_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// kernels are the contexts of a provider.
type kernels struct {
	mu     sync.Mutex
	made   int
	gone   map[string]bool
	ran    []string
	refuse error
}

func (k *kernels) of(p *instancetest.Provider) {
	k.gone = map[string]bool{}
	p.OnListContexts = func(context.Context, string) ([]sdk.CodeContext, error) { return nil, nil }
	p.OnCreateContext = func(_ context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.refuse != nil {
			return sdk.CodeContext{}, k.refuse
		}
		k.made++
		return sdk.CodeContext{ID: fmt.Sprintf("%s-%d", req.Language, k.made), Language: req.Language}, nil
	}
	p.OnExecute = func(_ context.Context, req sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.gone[req.ContextID] {
			return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
		}
		k.ran = append(k.ran, req.ContextID)
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
	}
}

func inDefault(language, session string) instance.RunRequest {
	req := run(language)
	req.Context, req.Session = instance.DefaultContext, session
	return req
}

func TestTheDefaultContextIsMadeAtItsFirstUse(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var k kernels
		k.of(first)
		execution, err := s.Run(t.Context(), acme, inDefault("python", "s"))
		assert.NilError(t, err)
		_, err = s.Run(t.Context(), acme, inDefault("python", "s"))
		assert.NilError(t, err)
		_, err = s.Execute(t.Context(), acme, execution.InstanceID, instance.ExecuteRequest{Code: "1", Language: "python", Context: instance.DefaultContext})
		assert.NilError(t, err)
		_, err = s.Run(t.Context(), acme, inDefault("javascript", "s"))
		assert.NilError(t, err)
		_, err = s.Run(t.Context(), acme, inDefault("python", "another"))
		assert.NilError(t, err)
		_, err = s.Run(t.Context(), acme, run("python"))
		assert.NilError(t, err)
		assert.DeepEqual(t, k.ran, []string{"python-1", "python-1", "python-1", "javascript-2", "python-3", ""})
		info, err := s.Get(t.Context(), acme, execution.InstanceID)
		assert.NilError(t, err)
		assert.DeepEqual(t, info.Contexts, map[string]string{"python": "python-1", "javascript": "javascript-2"})
	})
}

func TestManyFirstUsesMakeOneContext(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var k kernels
		k.of(first)
		_, err := s.Run(t.Context(), acme, func() instance.RunRequest { r := run("python"); r.Session = "s"; return r }())
		assert.NilError(t, err)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				_, err := s.Run(t.Context(), acme, inDefault("python", "s"))
				assert.Check(t, err)
			})
		}
		all.Wait()
		assert.Equal(t, k.made, 1)
	})
}

// It was deleted by its ID, or has ended: nothing ran, and a new one is made.
func TestADefaultContextThatIsGoneIsMadeAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var k kernels
		k.of(first)
		for range 2 {
			_, err := s.Run(t.Context(), acme, inDefault("python", "s"))
			assert.NilError(t, err)
			k.mu.Lock()
			k.gone["python-1"] = true
			k.mu.Unlock()
		}
		assert.DeepEqual(t, k.ran, []string{"python-1", "python-2"})
		// A context of the caller's own is none of the broker's.
		execution, err := s.Run(t.Context(), acme, inDefault("python", "s"))
		assert.NilError(t, err)
		_, err = s.Execute(t.Context(), acme, execution.InstanceID, instance.ExecuteRequest{Code: "1", ContextID: "python-1"})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
		assert.Equal(t, k.made, 2)
	})
}

// A provider that has run the code cannot have missed the context: what it says is no
// reason to run the code again, and to take as much output again.
func TestCodeThatHasPrintedIsNotRunAgainInAnotherContext(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var k kernels
		k.of(first)
		var ran int
		first.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
			ran++
			assert.Check(t, out.Stdout([]byte("once")))
			return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
		}
		_, err := s.Run(t.Context(), acme, inDefault("python", "s"))
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
		assert.Equal(t, ran, 1)
	})
}

func TestWhatADefaultContextIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, second *instancetest.Provider) {
		_, err := s.Run(t.Context(), acme, func() instance.RunRequest { r := inDefault("python", "s"); r.Context = "other"; return r }())
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
		_, err = s.Run(t.Context(), acme, inDefault("", "s"))
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
		_, err = s.Run(t.Context(), acme, inDefault("python", "s"))
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported}, "nobody has contexts")

		var k kernels
		k.of(first)
		execution, err := s.Run(t.Context(), acme, inDefault("python", "s"))
		assert.NilError(t, err)
		_, err = s.Execute(t.Context(), acme, execution.InstanceID, instance.ExecuteRequest{Code: "1", Language: "python", Context: instance.DefaultContext, ContextID: "x"})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
		k.refuse = sdk.Errorf(sdk.CodeQuotaExceeded, "there are too many contexts")
		_, err = s.Run(t.Context(), acme, inDefault("javascript", "s"))
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeQuotaExceeded})
		_, err = s.Run(t.Context(), acme, inDefault("python", "s"))
		assert.NilError(t, err, "the one that there is goes on")
	})
}

// A restart of the broker leaves clouds as they are, and so the state of their contexts.
func TestADefaultContextIsKnownAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k kernels
		cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
		k.of(cloud)
		s := journalled(m, instance.Past{}, cloud)
		_, err := s.Run(t.Context(), acme, inDefault("python", "s"))
		assert.NilError(t, err)
		s.ShutdownKeeping(t.Context())
		next := restarted(t, m, nil, cloud)
		defer next.Shutdown(t.Context())
		_, err = next.Run(t.Context(), acme, inDefault("python", "s"))
		assert.NilError(t, err)
		assert.DeepEqual(t, k.ran, []string{"python-1", "python-1"})
	})
}
