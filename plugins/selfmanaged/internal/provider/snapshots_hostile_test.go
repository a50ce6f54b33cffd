package provider

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/hostile"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Every program of the corpus about snapshots ends as it must.
func TestHostilePrograms(t *testing.T) {
	tier.Full(t)
	needsSnapshots(t)
	programs, err := hostile.Programs()
	assert.NilError(t, err)
	p := newProvider(t, map[string]any{"processes": 64, "workspace_mb": 32})
	ran := 0
	for _, program := range programs {
		if program.Theme == "snapshots" {
			ran++
			t.Run(program.Name, func(t *testing.T) { (&hostileScene{p: p, program: program}).run(t) })
		}
	}
	assert.Check(t, ran >= 10, "%d programs", ran)
}

// hostileScene is one program while it runs.
type hostileScene struct {
	p                 testProvider
	program           hostile.Program
	original, planted string
}

func (s *hostileScene) run(t *testing.T) {
	s.original = create(t, s.p, templateBash)
	first := s.program.Steps[0]
	meanwhile := s.program.Steps[1].Place == hostile.InACopyMeanwhile
	var held chan outcome
	if meanwhile {
		held = make(chan outcome, 1)
		go func() { held <- s.execute(t, first, s.original, nil) }()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if s.shell(t, s.original, "test -e /workspace/.holding && echo holding") != "holding\n" {
				return poll.Continue("the program does not hold")
			}
			return poll.Success()
		}, poll.WithDelay(20*time.Millisecond), poll.WithTimeout(first.Timeout))
	} else {
		o := s.execute(t, first, s.original, nil)
		s.check(t, first, o)
		s.planted = strings.TrimSuffix(o.stdout, "\n")
	}
	taken := snapshot(t, s.p, s.original, forFork)
	for _, step := range s.program.Steps[1:] {
		instance := s.original
		if step.Place != hostile.NextExecution {
			instance = goOn(t, s.p, taken)
		}
		s.check(t, step, s.execute(t, step, instance, map[string]string{"PLANTED": s.planted}))
		assert.Check(t, is.Equal(s.shell(t, instance, "echo alive"), "alive\n"))
		if step.Control == hostile.InSession {
			o := s.execute(t, step, s.original, nil)
			assert.Check(t, strings.HasPrefix(o.stdout, "found "), "it is blind: %q %q", o.stdout, o.stderr)
		}
		if instance != s.original {
			assert.NilError(t, s.p.Destroy(t.Context(), instance))
		}
	}
	if meanwhile {
		s.shell(t, s.original, "touch /workspace/.release")
		s.check(t, first, <-held)
	}
	assert.Check(t, is.Equal(s.shell(t, s.original, "echo alive"), "alive\n"))
	assert.NilError(t, s.p.Destroy(t.Context(), s.original))
}

func (s *hostileScene) shell(t *testing.T, instance, code string) string {
	t.Helper()
	o, err := execute(t, s.p, sdk.ExecuteRequest{InstanceID: instance, Language: sdk.Bash, Code: code})
	assert.NilError(t, err)
	return o.stdout
}

// execute may be called by other goroutines.
func (s *hostileScene) execute(t *testing.T, step hostile.Step, instance string, env map[string]string) outcome {
	t.Helper()
	all := maps.Clone(step.Env)
	maps.Copy(all, env)
	var r recorder
	ctx, cancel := context.WithTimeout(t.Context(), 2*step.Timeout)
	defer cancel()
	result, err := s.p.Execute(ctx, sdk.ExecuteRequest{
		InstanceID: instance, Language: sdk.Language(s.program.Language), Code: step.Prelude + step.Code,
		Env: all, Timeout: step.Timeout, OutputLimit: 1 << 20,
	}, &r)
	assert.Check(t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	return outcome{result, r.out.String(), r.err.String(), r.artifacts}
}

func (s *hostileScene) check(t *testing.T, step hostile.Step, o outcome) {
	t.Helper()
	assert.Check(t, is.Equal(string(o.Status), step.Status), "%q %q", o.stdout, o.stderr)
	assert.Check(t, step.Exit < 0 || o.ExitCode == step.Exit, "exit code %d", o.ExitCode)
	assert.Check(t, step.Stdout.MatchString(o.stdout), "stdout %.500q, stderr %.500q", o.stdout, o.stderr)
	assert.Check(t, step.Stderr == nil || step.Stderr.MatchString(o.stderr), "stderr %.500q", o.stderr)
	assert.Check(t, is.Equal(o.Truncated, step.Truncated))
}
