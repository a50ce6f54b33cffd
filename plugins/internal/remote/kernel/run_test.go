package kernel_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// service is a kernel of a service that does what a test says.
type service struct {
	kernel.Kernel
	cell      func(ctx context.Context, event func(kernel.Event) error) (bool, error)
	value     string
	obeys     bool
	death     *kernel.Death
	gone      chan struct{}
	lost      error
	class     kernel.Class
	restarts  int
	interrupt chan struct{}
	early     bool // it is gone before the code has begun
}

func (s *service) Ready(context.Context) error { return nil }

func (s *service) Before() string {
	if s.early {
		return "before"
	}
	return ""
}

func (s *service) After() string                  { return "" }
func (s *service) Call() string                   { return "call" }
func (s *service) Watch(<-chan struct{}, func())  {}
func (s *service) Gone() <-chan struct{}          { return s.gone }
func (s *service) Lost() error                    { return s.lost }
func (s *service) Class(error) kernel.Class       { return s.class }
func (s *service) Restart(context.Context) error  { s.restarts++; return nil }
func (s *service) Interrupt(context.Context) bool { close(s.interrupt); return s.obeys }

func (s *service) Cell(ctx context.Context, code string, event func(kernel.Event) error) (bool, error) {
	switch code {
	case "call":
		return true, nil
	case "before":
		close(s.gone)
		<-ctx.Done()
		return true, nil
	}
	return s.cell(ctx, event)
}

func (s *service) Drain(_ context.Context, event func(kernel.Event) error) (json.RawMessage, error) {
	if s.value == "" {
		return nil, event(kernel.Event{Stdout: []byte("last")})
	}
	return json.RawMessage(s.value), event(kernel.Event{Stdout: []byte("last")})
}

func (s *service) Died(context.Context, error) (kernel.Death, bool) {
	if s.death == nil {
		return kernel.Death{}, false
	}
	return *s.death, true
}

func (s *service) Settled(context.Context, kernel.Error, *sdk.ExecuteResult) error { return nil }

func (s *service) Explain(_ context.Context, err error) error {
	return sdk.Errorf(sdk.CodeUnavailable, "explained: %w", err)
}

// listener is an sdk.Output.
type listener struct {
	stdout, stderr strings.Builder
	deaf           error
}

func (l *listener) Stdout(p []byte) error       { l.stdout.Write(p); return l.deaf }
func (l *listener) Stderr(p []byte) error       { l.stderr.Write(p); return l.deaf }
func (l *listener) Artifact(sdk.Artifact) error { return l.deaf }

var errService = errors.New("the service failed")

// failing is a cell that ends with an error of the language.
func failing(e kernel.Error) func(context.Context, func(kernel.Event) error) (bool, error) {
	return func(_ context.Context, event func(kernel.Event) error) (bool, error) {
		return true, event(kernel.Event{Error: &e})
	}
}

// endless is a cell that lasts as long as somebody listens, or until it is interrupted.
func endless(s *service) func(context.Context, func(kernel.Event) error) (bool, error) {
	return func(ctx context.Context, event func(kernel.Event) error) (bool, error) {
		if s.gone != nil {
			close(s.gone)
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-s.interrupt:
		}
		if !s.obeys {
			<-ctx.Done()
			return false, ctx.Err()
		}
		return true, event(kernel.Event{Error: &kernel.Error{Name: "KeyboardInterrupt"}})
	}
}

func broken(context.Context, func(kernel.Event) error) (bool, error) { return false, errService }

func TestWhatBecameOfCodeInAKernelIsSaid(t *testing.T) {
	wasRestarted := sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 137, Detail: "the context was restarted"}
	noContext := sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
	for name, c := range map[string]struct {
		service   service
		endless   bool
		arguments string
		language  sdk.Language
		want      sdk.ExecuteResult
		stdout    string
		stderr    string
		code      sdk.Code
		restarts  int
	}{
		"it printed": {
			service: service{cell: func(_ context.Context, event func(kernel.Event) error) (bool, error) {
				return true, event(kernel.Event{Stdout: []byte("first ")})
			}},
			want: sdk.ExecuteResult{Status: sdk.StatusSucceeded}, stdout: "first last",
		},
		"main returned": {
			service: service{cell: func(context.Context, func(kernel.Event) error) (bool, error) { return true, nil }, value: "[1]"}, arguments: "{}",
			want: sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: json.RawMessage("[1]")}, stdout: "last",
		},
		"main returned, and nothing arrived": {
			service: service{cell: func(context.Context, func(kernel.Event) error) (bool, error) { return true, nil }}, arguments: "{}",
			want: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1, Detail: "the result did not arrive: the code ended the interpreter itself, or the service has cut the output"}, stdout: "last",
		},
		"an exception": {service: service{cell: failing(kernel.Error{Name: "E", Value: "v", Traceback: "\x1b[31mat 1\nE: v\x1b[0m\n"})}, want: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, stdout: "last", stderr: "at 1\nE: v\n"},
		"a syntax error, of which the value says more": {
			service: service{cell: failing(kernel.Error{Name: "SyntaxError", Value: "invalid syntax (cell, line 1)", Traceback: "  line 1    1 +       ^SyntaxError: invalid syntax"})},
			want:    sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, stdout: "last", stderr: "  line 1    1 +       ^\nSyntaxError: invalid syntax\n",
		},
		"one without a text": {service: service{cell: failing(kernel.Error{Name: "E", Value: "v"})}, want: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, stdout: "last", stderr: "E: v\n"},
		"no memory":          {service: service{cell: failing(kernel.Error{Name: "MemoryError"})}, want: sdk.ExecuteResult{Status: sdk.StatusOutOfMemory, ExitCode: 1}, stdout: "last", stderr: "MemoryError: \n"},
		"an exit":            {service: service{cell: failing(kernel.Error{Name: "SystemExit", Value: "259"})}, want: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 3}, stdout: "last"},
		"a quiet exit":       {service: service{cell: failing(kernel.Error{Name: "SystemExit", Value: "None"})}, want: sdk.ExecuteResult{Status: sdk.StatusSucceeded}, stdout: "last"},
		"an exit that says":  {service: service{cell: failing(kernel.Error{Name: "SystemExit", Value: "sorry"})}, want: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, stdout: "last", stderr: "sorry\n"},
		"its time was over, and it obeyed": {
			service: service{obeys: true}, endless: true,
			want: sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: 130, Detail: "cut"}, stdout: "last", stderr: "KeyboardInterrupt: \n",
		},
		"its time was over, and it did not": {
			service: service{}, endless: true, restarts: 1,
			want: sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: 137, Detail: kernel.Unstoppable + "; cut"}, stdout: "last",
		},
		"its time was over, in a language without interrupts": {
			service: service{obeys: true}, endless: true, language: sdk.JavaScript, restarts: 1,
			want: sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: 137, Detail: kernel.Unstoppable + "; cut"}, stdout: "last",
		},
		"the service has ended it": {
			service: service{cell: broken, class: kernel.TimedOut}, restarts: 1,
			want: sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: 137, Detail: kernel.Unstoppable + "; cut"}, stdout: "last",
		},
		"the interpreter ended": {
			service: service{cell: broken, class: kernel.Open, death: &kernel.Death{Exit: 3}}, restarts: 1,
			want: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 3, Detail: kernel.Ended}, stdout: "last",
		},
		"the interpreter was killed": {
			service: service{cell: broken, class: kernel.Open, death: &kernel.Death{Exit: 1, Memory: true}}, restarts: 1,
			want: sdk.ExecuteResult{Status: sdk.StatusOutOfMemory, ExitCode: 137, Detail: kernel.Killed}, stdout: "last",
		},
		"the service was not reached":          {service: service{cell: broken, class: kernel.Refused}, code: sdk.CodeUnavailable},
		"nobody knows whether it runs":         {service: service{cell: broken, class: kernel.Open}, code: sdk.CodeUnavailable, restarts: 1, stdout: "last"},
		"its context was deleted":              {service: service{gone: make(chan struct{}), lost: noContext}, endless: true, code: sdk.CodeUnavailable},
		"its context was restarted by another": {service: service{gone: make(chan struct{})}, endless: true, want: wasRestarted},
		"its context was deleted before":       {service: service{gone: make(chan struct{}), lost: noContext, early: true}, code: sdk.CodeNotFound},
		"its context was restarted before":     {service: service{gone: make(chan struct{}), early: true}, want: wasRestarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.service
			s.interrupt = make(chan struct{})
			if c.endless {
				s.cell = endless(&s)
			}
			if c.language == "" {
				c.language = sdk.Python
			}
			limit := time.Minute
			if c.want.Status == sdk.StatusTimeout {
				limit = 50 * time.Millisecond
			}
			got, out, err := run(t.Context(), &s, c.language, c.arguments, limit)
			if c.code != "" {
				assert.Equal(t, sdk.CodeOf(err), c.code)
			} else {
				assert.NilError(t, err)
				got.Duration = 0
				assert.DeepEqual(t, got, c.want)
			}
			assert.Equal(t, out.stdout.String(), c.stdout)
			assert.Equal(t, out.stderr.String(), c.stderr)
			assert.Equal(t, s.restarts, c.restarts)
		})
	}
}

// run runs code for at most limit, of the minute that was asked for.
func run(ctx context.Context, s *service, language sdk.Language, arguments string, limit time.Duration) (sdk.ExecuteResult, *listener, error) {
	req := sdk.ExecuteRequest{InstanceID: "i", ExecutionID: "x", Code: "code", Timeout: time.Minute}
	if arguments != "" {
		req.Arguments = json.RawMessage(arguments)
	}
	var executions remote.Executions
	running, end := executions.Begin(req)
	defer end()
	out := &listener{}
	one := kernel.Run{Kernel: s, Request: req, Out: out, Language: language, Execution: running, Limit: limit, Cut: "cut", Grace: 50 * time.Millisecond}
	result, err := one.Do(ctx)
	return result, out, err
}

func TestCodeWhoseOutputNobodyTakesIsStopped(t *testing.T) {
	gone := errors.New("gone")
	s := &service{interrupt: make(chan struct{}), cell: func(_ context.Context, event func(kernel.Event) error) (bool, error) {
		return false, event(kernel.Event{Stdout: []byte("x")})
	}}
	var executions remote.Executions
	req := sdk.ExecuteRequest{Code: "code", Timeout: time.Minute}
	running, end := executions.Begin(req)
	defer end()
	one := kernel.Run{Kernel: s, Request: req, Out: &listener{deaf: gone}, Language: sdk.Python, Execution: running, Limit: time.Minute, Grace: time.Minute}
	_, err := one.Do(t.Context())
	assert.ErrorIs(t, err, gone)
	assert.Equal(t, s.restarts, 1)
}

func TestCodeThatIsInterruptedIsCancelled(t *testing.T) {
	var executions remote.Executions
	req := sdk.ExecuteRequest{InstanceID: "i", ExecutionID: "x", Code: "code", Timeout: time.Minute}
	running, end := executions.Begin(req)
	defer end()
	s := &service{interrupt: make(chan struct{}), obeys: true}
	cell := endless(s)
	s.cell = func(ctx context.Context, event func(kernel.Event) error) (bool, error) {
		assert.Check(t, executions.Interrupt(ctx, "i", "x"))
		assert.Check(t, executions.Interrupt(ctx, "i", "x"), "twice is once")
		return cell(ctx, event)
	}
	one := kernel.Run{Kernel: s, Request: req, Out: &listener{}, Language: sdk.Python, Execution: running, Limit: time.Minute, Grace: time.Minute}
	result, err := one.Do(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusCancelled)
	assert.Equal(t, result.ExitCode, 130)
	assert.ErrorIs(t, executions.Interrupt(t.Context(), "i", "another"), &sdk.Error{Code: sdk.CodeNotFound})
}
