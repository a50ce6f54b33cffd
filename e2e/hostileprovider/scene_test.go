package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

const (
	// memory is how much more the broker may hold, whatever a plugin does.
	memory = 64 << 20
	// timeout is that of an execution, in seconds, unless the test gives another.
	timeout = 0.5
	// secret is a setting of the hostile provider.
	secret = "kept-from-everybody"
)

// plan says what the hostile plugin does at which call.
type plan map[string]string

// scene is a broker with a good provider, which somebody uses all the time, and a
// hostile one.
type scene struct {
	*harness.Broker
	t      *testing.T
	memory *harness.Memory
	served atomic.Int64 // executions of the good provider
	read   int          // how much of the log has been looked at, in bytes
}

func options(start plan) harness.Options {
	return harness.Options{
		Config: harness.Tenants + fmt.Sprintf(`
limits {
  create_timeout  = "5s"
  default_timeout = "1s"
}
providers { active = "good" }
provider "good" { plugin = "mock" }
provider "hostile" { secret = %q }
`, secret),
		Plugins: map[string]string{"mock": mock, "hostile": hostile},
		Prepare: func(dir string) { write(filepath.Join(dir, "bin", "plugins", "hostile.plan"), start) },
	}
}

func write(path string, p plan) {
	text, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		panic(err)
	}
}

// newScene starts a broker whose providers are both well, for now.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{Broker: harness.Start(t, options(nil)), t: t}
	s.useTheGoodOne()
	s.awaitHostile(t)
	s.memory = harness.WatchMemory(t, memory, map[string]int{"broker": s.PID})
	return s
}

// plan changes what the hostile plugin does from now on.
func (s *scene) plan(p plan) { write(filepath.Join(s.Dir, "bin", "plugins", "hostile.plan"), p) }

// useTheGoodOne executes in the good provider until the test ends. Each execution
// must be answered, with what is right.
func (s *scene) useTheGoodOne() {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(30 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			want := fmt.Sprint("number ", i)
			answer := s.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{
				"language": "mock", "provider": "good", "code": fmt.Sprintf(`{"stdout": %q}`, want), "timeout": 30,
			})
			var e harness.Execution
			if answer.Err != nil || answer.Status != http.StatusOK || json.Unmarshal(answer.Body, &e) != nil || e.Stdout != want {
				s.t.Errorf("the good provider's answer: %v %d %s", answer.Err, answer.Status, answer.Body)
				return
			}
			s.served.Add(1)
		}
	}()
	s.t.Cleanup(func() {
		close(stop)
		<-stopped
	})
}

// execute runs something in a fresh instance of the hostile provider.
func (s *scene) execute() harness.Answer { return s.executeWithin(timeout) }

// executeWithin is execute with a timeout, in seconds.
func (s *scene) executeWithin(timeout float64) harness.Answer {
	return s.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{
		"language": "mock", "provider": "hostile", "code": "hello", "timeout": timeout,
	})
}

// call sends a request without a body.
func (s *scene) call(method, path string) harness.Answer {
	return s.Do(method, path, harness.Token, nil)
}

// create makes an instance of the hostile provider that stays.
func (s *scene) create(token string) harness.Answer {
	return s.Do(http.MethodPost, "/api/v1/instances", token, map[string]any{"provider": "hostile"})
}

// instance is the ID of one.
func (s *scene) instance(t *testing.T) string {
	t.Helper()
	answer := s.create(harness.Token)
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	var i struct {
		ID string `json:"id"`
	}
	answer.Into(t, &i)
	return i.ID
}

// awaitHostile waits until the hostile provider works.
func (s *scene) awaitHostile(t *testing.T) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		answer := s.execute()
		if answer.Status != http.StatusOK {
			return poll.Continue("%v %s", answer.Err, answer.Body)
		}
		var e harness.Execution
		answer.Into(t, &e)
		return poll.Compare(is.Contains(e.Stdout, " hello"))
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(50*time.Millisecond))
}

// blames expects an answer to be the refusal of a request, with one of the codes,
// that names the hostile provider and says nothing that it should not.
func blames(t *testing.T, answer harness.Answer, code string) {
	t.Helper()
	assert.NilError(t, answer.Err)
	var p struct {
		Code     string `json:"code"`
		Provider string `json:"provider"`
		Detail   string `json:"detail"`
	}
	answer.Into(t, &p)
	assert.Check(t, p.Code != "" && strings.Contains(code, p.Code), "%s is not %s: %s", p.Code, code, answer.Body)
	assert.Check(t, is.Equal(p.Provider, "hostile"), "%s", answer.Body)
	if p.Code != "SB015" { // which speaks of the request
		assert.Check(t, strings.Contains(p.Detail, `provider "hostile"`), "%s", answer.Body)
	}
	assert.Check(t, len(answer.Body) < 8<<10)
	harmless(t, string(answer.Body))
}

// harmless looks for what a plugin must not be able to have shown.
func harmless(t *testing.T, text string) {
	t.Helper()
	assert.Check(t, !strings.Contains(text, secret), "the secret is in it")
	at := strings.IndexFunc(text, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0x7f || r == 0x202e
	})
	assert.Check(t, at < 0, "a character that would disturb a terminal: %.2000q", text[max(at, 0):])
	assert.Check(t, !strings.Contains(text, `\u001b`) && !strings.Contains(text, `\u0000`), "%.2000s", text)
	_, forged, found := strings.Cut("\n"+text, "\n2026-01-01")
	assert.Check(t, !found, "a forged line of the log: %.2000s", forged)
}

// unharmed expects that the good provider goes on to serve, and that the broker has
// not grown.
func (s *scene) unharmed(t *testing.T) {
	t.Helper()
	before := s.served.Load()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if s.served.Load() < before+3 {
			return poll.Continue("the good provider does not serve")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
	s.memory.Check(t, t.Name())
	log := s.Log()
	harmless(t, log[s.read:])
	s.read = strings.LastIndexByte(log, '\n') + 1
}

// kill ends the hostile plugin, so that the next one starts.
func (s *scene) kill(t *testing.T) {
	t.Helper()
	assert.NilError(t, syscall.Kill(s.Plugin("hostile"), syscall.SIGKILL))
}

// awaitState waits until the hostile provider says of itself that it is in a state
// for a reason.
func (s *scene) awaitState(t *testing.T, state, reason string) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		var list struct {
			Providers []struct {
				ID, State, Reason string
			}
		}
		answer := s.call(http.MethodGet, "/api/v1/providers")
		answer.Into(t, &list)
		for _, p := range list.Providers {
			if p.ID == "hostile" && p.State == state && strings.Contains(p.Reason, reason) {
				harmless(t, string(answer.Body))
				return poll.Success()
			}
		}
		return poll.Continue("%s", answer.Body)
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(50*time.Millisecond))
}
