package main_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// A plugin may die in each call. Who waits for it is told at once.
func TestADeathInACall(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for name, death := range map[string]string{
		"by an exit": "exit", "by SIGKILL": "killed", "by a panic": "panic",
		"by SIGKILL, with a child that holds all descriptors": "heir",
	} {
		for _, call := range []string{"Create", "Execute", "Destroy"} {
			t.Run(call+": "+name, func(t *testing.T) {
				s.t = t
				id := s.instance(t)
				s.plan(plan{call: death})
				began := time.Now()
				var answer harness.Answer
				if call == "Destroy" {
					answer = s.call(http.MethodDelete, "/api/v1/instances/"+id)
				} else {
					answer = s.execute()
				}
				blames(t, answer, "SB009")
				t.Logf("answered after %v", time.Since(began))
				s.plan(nil)
				s.awaitHostile(t)
				if death == "heir" {
					assert.Check(t, !childLives(t, s), "the child of its group goes with the plugin")
				}
				s.unharmed(t)
			})
		}
	}
}

// A plugin that does not answer health probes is killed and started again: three
// probes of five seconds, five seconds apart.
func TestAPluginThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(*testing.T, *scene){
		"in its health": func(_ *testing.T, s *scene) { s.plan(plan{"Health": "hang"}) },
		"by SIGSTOP":    func(t *testing.T, s *scene) { assert.NilError(t, syscall.Kill(s.Plugin("hostile"), syscall.SIGSTOP)) },
		"by stopping itself in a call": func(t *testing.T, s *scene) {
			s.plan(plan{"Execute": "stopped"})
			blames(t, s.execute(), "SB009")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			before := s.Plugin("hostile")
			hang(t, s)
			s.awaitState(t, "unhealthy", "did not answer a health probe")
			s.plan(nil)
			s.awaitHostile(t)
			s.awaitState(t, "ready", "")
			assert.Check(t, s.Plugin("hostile") != before || name == "in its health")
			s.unharmed(t)
		})
	}
}

// A plugin that breaks off its probes may do so with everything else, and has not died.
func TestAPluginThatResetsItsHealthIsReplaced(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	before := s.Plugin("hostile")
	s.plan(plan{"Health": "reset"})
	s.awaitState(t, "unhealthy", "breaks off its health probes")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if !strings.Contains(s.Log(), "did not answer 3 health probes and was killed") {
			return poll.Continue("it was not killed")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	s.plan(nil)
	s.awaitHostile(t)
	s.awaitState(t, "ready", "")
	assert.Check(t, s.Plugin("hostile") != before)
	s.unharmed(t)
}

// An instance that a list lacks is gone; the process that lists is the same as before.
func TestWhatAListLacksIsToldTruly(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newScene(t)
	id := s.instance(t)
	s.plan(plan{"List": "list_nothing"})
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Equal(s.call(http.MethodGet, "/api/v1/instances/"+id).Status, http.StatusNotFound))
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(100*time.Millisecond))
	told := string(s.call(http.MethodGet, "/api/v1/instances/"+id).Body)
	assert.Check(t, is.Contains(told, "its provider does not have it any more"))
	s.unharmed(t)
}

func TestAHealthThatIsNone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ behaviour, reason string }{
		"a metric that is no number":      {"health_metrics", "metrics that are not acceptable"},
		"400,000 empty metrics":           {"health_crowd", "too many fields"},
		"a detail of a megabyte":          {"health_details", "above 4096 bytes"},
		"a reason that steers a terminal": {"health_reason", "bad"},
		"a message of 4 GiB":              {"length_4g", "too large"},
		"the word that it is not there":   {"unavailable", "the connection to the plugin is lost"},
		"an error that would forge a log": {"error_text", "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.plan(plan{"Health": test.behaviour})
			s.awaitState(t, "unhealthy", test.reason)
			s.unharmed(t)
			s.plan(nil)
			s.awaitState(t, "ready", "")
		})
	}
}

// A plugin that does not end with its standard input is killed.
func TestABrokerStopsWithADeafPlugin(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.plan(plan{"start": "deaf", "Close": "hang", "Destroy": "hang"})
	s.kill(t)
	s.awaitHostile(t)
	s.instance(t)
	s.unharmed(t)
	// The broker is stopped in the end, and the test fails if anything is left.
}

// Nobody asks such a plugin to end but its watchdog, which does so in the end.
func TestNothingOfADeafPluginOutlivesAKilledBroker(t *testing.T) {
	t.Parallel()
	s := &scene{t: t, Broker: harness.Start(t, options(plan{"start": "deaf", "Create": "orphan"}))}
	s.awaitHostile(t)
	s.instance(t)
	assert.Assert(t, childLives(t, s))
	s.Kill()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if left := s.Left(); len(left) > 0 || childLives(t, s) {
			return poll.Continue("left: %v", left)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}
