package hostile_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/hostile"
)

// scene is one program while it runs.
type scene struct {
	*corpus
	program           hostile.Program
	session, instance string
	planted           string
}

// holds says whether other steps run while the first one does.
func (s *scene) holds() bool {
	for _, step := range s.program.Steps {
		if step.Place == hostile.Meanwhile || step.Place == hostile.MeanwhileElsewhere {
			return true
		}
	}
	return false
}

// ofOneShots says whether a step follows a first one that is in no session.
func ofOneShots(step hostile.Step) bool {
	return step.Place == hostile.NextOneShot || step.Place == hostile.OneShotOfAnother
}

// oneShot runs each step as a one-shot. A sandbox is emptied after the answer, so that
// the next step may come too early for it and have another one: then all is done again.
func (s *scene) oneShot(t *testing.T) {
	s.oneShots.Lock()
	defer s.oneShots.Unlock()
	s.session = ""
	const rounds = 5
	for round := 1; ; round++ {
		e := s.execute(t, s.program.Steps[0], harness.Token, "", nil)
		check(t, s.program.Steps[0], e)
		s.planted = strings.TrimSuffix(e.Stdout, "\n")
		if s.nextOneShots(t, round == rounds) {
			break
		}
	}
	s.controls(t, hostile.Together)
}

// nextOneShots runs the steps after the first. Unless it is the last round, it stops at
// one that should have had the first one's sandbox and had another, and returns false.
func (s *scene) nextOneShots(t *testing.T, last bool) bool {
	t.Helper()
	const tries = 5
	for _, step := range s.program.Steps[1:] {
		token := harness.Token
		if step.Place == hostile.OneShotOfAnother {
			token = harness.OtherToken
		}
		e := s.execute(t, step, token, "", map[string]string{"PLANTED": s.planted})
		for try := 1; try < tries && strings.HasPrefix(e.Stdout, "fresh\n"); try++ {
			e = s.execute(t, step, token, "", map[string]string{"PLANTED": s.planted})
		}
		if !last && strings.HasPrefix(e.Stdout, "fresh\n") && len(differences(step, e)) > 0 {
			return false
		}
		check(t, step, e)
	}
	return true
}

// whileHeld runs the first step until the others are done.
func (s *scene) whileHeld(t *testing.T) {
	first := s.program.Steps[0]
	held := make(chan harness.Answer, 1)
	// The session exists before, so that the two requests meet in one instance.
	ready := s.shell(t, "echo ready")
	assert.Equal(t, ready.Stdout, "ready\n")
	s.instance = ready.InstanceID
	go func() { held <- s.post(first, harness.Token, s.session, nil) }()
	released := false
	release := func() harness.Execution {
		released = true
		s.shell(t, "touch /workspace/.release")
		e := decode(t, <-held)
		s.shell(t, "rm -f /workspace/.release /workspace/.holding")
		return e
	}
	defer func() {
		if !released {
			release()
		}
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if s.shell(t, "test -e /workspace/.holding && echo holding").Stdout != "holding\n" {
			return poll.Continue("the program does not hold")
		}
		return poll.Success()
	}, poll.WithDelay(20*time.Millisecond), poll.WithTimeout(first.Timeout))
	if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", heldPort)); err == nil {
		t.Error("what the program listens on is on the host")
		assert.NilError(t, conn.Close())
	}
	s.controls(t, hostile.InSession)
	s.others(t)
	check(t, first, release())
}

// others runs all steps but the first.
func (s *scene) others(t *testing.T) {
	for i, step := range s.program.Steps[1:] {
		token, session := harness.Token, s.session
		switch step.Place {
		case hostile.AnotherSession, hostile.MeanwhileElsewhere:
			session = fmt.Sprintf("%s-%d", s.session, i)
		case hostile.AnotherTenant:
			token = harness.OtherToken
		case hostile.AfterDelete:
			s.delete(t, harness.Token, s.instance)
		}
		e := s.execute(t, step, token, session, map[string]string{"PLANTED": s.planted})
		check(t, step, e)
		same := step.Place == hostile.NextExecution || step.Place == hostile.Meanwhile
		assert.Check(t, is.Equal(e.InstanceID == s.instance, same), "the instance of step %d", i+2)
		switch {
		case step.Place == hostile.AfterDelete:
			s.instance = e.InstanceID
		case !same:
			s.delete(t, token, e.InstanceID)
		}
	}
}

// controls proves that the probes of the program are not blind.
func (s *scene) controls(t *testing.T, kind hostile.Control) {
	for i, step := range s.program.Steps {
		if step.Control != kind {
			continue
		}
		env := map[string]string{"PLANTED": s.planted}
		if kind == hostile.Together {
			env["TOGETHER"] = "1"
			maps.Copy(env, s.program.Steps[0].Env)
			step.Code = s.program.Steps[0].Code + "\n" + step.Code
		}
		e := s.execute(t, step, harness.Token, s.session, env)
		lines := strings.Split(strings.TrimSuffix(e.Stdout, "\n"), "\n")
		assert.Check(t, is.Equal(e.Status, "succeeded"), "control of step %d: %+v", i+1, e)
		assert.Check(t, strings.HasPrefix(lines[len(lines)-1], "found "), "step %d is blind: %+v", i+1, e)
	}
}

// servesOn asks for the next thing, in the program's instance and in a new one.
func (s *scene) servesOn(t *testing.T) {
	next := hostile.Step{Code: "echo alive", Timeout: time.Minute}
	if slices.ContainsFunc(s.program.Steps, func(step hostile.Step) bool { return step.InstanceMayEnd }) {
		e := decode(t, s.postIn("bash", next, harness.Token, "", nil))
		assert.Check(t, is.Equal(e.Stdout, "alive\n"), "%+v", e)
		return
	}
	e := decode(t, s.postIn("bash", next, harness.Token, s.session, nil))
	assert.Check(t, is.Equal(e.Stdout, "alive\n"), "%+v", e)
	assert.Check(t, is.Equal(e.InstanceID, s.instance), "the program cost its instance")
}

func (s *scene) delete(t *testing.T, token, instance string) {
	t.Helper()
	answer := s.broker.Do(http.MethodDelete, "/api/v1/instances/"+instance, token, nil)
	assert.NilError(t, answer.Err)
	assert.Equal(t, answer.Status, http.StatusNoContent, "%s", answer.Body)
}

// shell runs a command in the program's instance.
func (s *scene) shell(t *testing.T, command string) harness.Execution {
	t.Helper()
	return decode(t, s.postIn("bash", hostile.Step{Code: command, Timeout: time.Minute}, harness.Token, s.session, nil))
}

// execute runs a step. How far a program comes before its time limit is the
// machine's matter: one that was stopped too early to show anything gets twice the
// time.
func (s *scene) execute(t *testing.T, step hostile.Step, token, session string, env map[string]string) harness.Execution {
	t.Helper()
	for {
		e := s.executeOnce(t, step, token, session, env)
		tooEarly := step.Status == "timeout" && e.Status == "timeout" && len(differences(step, e)) > 0
		if !tooEarly || step.Timeout > liveness {
			return e
		}
		step.Timeout *= 2
		t.Logf("stopped too early; once more with %s", step.Timeout)
	}
}

// executeOnce runs a step and looks for the secret in all that comes back.
func (s *scene) executeOnce(t *testing.T, step hostile.Step, token, session string, env map[string]string) harness.Execution {
	t.Helper()
	answer := s.post(step, token, session, env)
	assert.Check(t, !strings.Contains(string(answer.Body), s.canary.Secret), "the secret of the host came out")
	return decode(t, answer)
}

func (s *scene) post(step hostile.Step, token, session string, env map[string]string) harness.Answer {
	return s.postIn(s.program.Language, step, token, session, env)
}

func (s *scene) postIn(language string, step hostile.Step, token, session string, env map[string]string) harness.Answer {
	all := maps.Clone(s.env)
	maps.Copy(all, step.Env)
	maps.Copy(all, env)
	request := map[string]any{
		"language": language, "code": step.Prelude + step.Code, "env": all, "timeout": step.Timeout.Seconds(),
	}
	if session != "" {
		request["session_id"] = session
	}
	if step.Arguments != "" {
		request["arguments"] = json.RawMessage(step.Arguments)
	}
	return s.broker.Do(http.MethodPost, "/api/v1/execute", token, request)
}

func decode(t *testing.T, answer harness.Answer) harness.Execution {
	t.Helper()
	assert.NilError(t, answer.Err)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	var e harness.Execution
	answer.Into(t, &e)
	return e
}

// liveness is how much longer than it asked for a step may take on a busy machine.
const liveness = 30 * time.Second

// check compares what came of a step with what must.
func check(t *testing.T, step hostile.Step, e harness.Execution) {
	t.Helper()
	for _, wrong := range differences(step, e) {
		t.Errorf("%s\nstdout: %.2000s\nstderr: %.2000s", wrong, e.Stdout, e.Stderr)
		surprises.add(fmt.Sprintf("%s: %s\n\tstdout: %.200q\n\tstderr: %.200q", t.Name(), wrong, e.Stdout, e.Stderr))
	}
}

// differences lists what of an execution is not as its step says.
func differences(step hostile.Step, e harness.Execution) []string {
	code := ""
	if e.Error != nil {
		code = e.Error.Code
	}
	var wrong []string
	expect := func(what string, got, want any, holds bool) {
		if !holds {
			wrong = append(wrong, fmt.Sprintf("%s is %v, not %v", what, got, want))
		}
	}
	expect("status", e.Status, step.Status, e.Status == step.Status)
	expect("exit code", e.ExitCode, step.Exit, step.Exit < 0 || e.ExitCode == step.Exit)
	expect("stdout", "as below", step.Stdout, step.Stdout.MatchString(e.Stdout))
	expect("stderr", "as below", step.Stderr, step.Stderr == nil || step.Stderr.MatchString(e.Stderr))
	expect("length of stdout", len(e.Stdout), step.Bytes, step.Bytes < 0 || len(e.Stdout) == step.Bytes)
	expect("result", string(e.Result), step.Result, string(e.Result) == step.Result)
	expect("artifacts", artifacts(e), step.Artifacts, step.Artifacts == nil || step.Artifacts.MatchString(artifacts(e)))
	expect("truncated", e.Truncated, step.Truncated, e.Truncated == step.Truncated)
	expect("timed out", e.TimedOut, step.Status == "timeout", e.TimedOut == (step.Status == "timeout"))
	wanted := map[string]string{"timeout": "SB005", "out_of_memory": "SB006"}[step.Status]
	expect("code", code, wanted, code == wanted)
	bound := (step.Timeout + liveness).Seconds()
	expect("time in seconds", e.ExecutionTime, bound, e.ExecutionTime < bound)
	return wrong
}

// artifacts has a line for each artifact.
func artifacts(e harness.Execution) string {
	var lines []string
	for _, a := range e.Artifacts {
		lines = append(lines, strings.Join(strings.Fields(strings.Join([]string{a.Kind, strconv.Quote(a.Name), a.MIMEType, a.Refused}, " ")), " "))
	}
	return strings.Join(lines, "\n")
}
