package provider

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/supervisor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/program"
)

// Execute implements sdk.Provider.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, sdk.ExecutionError(err, false)
	}
	if req.ContextID != "" {
		c, err := p.context(ctx, sb, req.ContextID)
		if err != nil {
			return sdk.ExecuteResult{}, sdk.ExecutionError(err, false)
		}
		return p.executeInContext(ctx, c, req, out)
	}
	switch req.Language {
	case sdk.TypeScript, sdk.R, sdk.Java:
		return p.executeCell(ctx, sb, req, out)
	default:
		return p.executeProcess(ctx, sb, req, out)
	}
}

// executeProcess runs code as a process of its own.
func (p *Provider) executeProcess(ctx context.Context, sb *sandbox, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	todo, err := program.ForProcess(req, program.Options{Dir: workspace})
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	file := "/tmp/.sandbox-" + randomName() + todo.Suffix
	what := supervisor.Job{Argv: todo.Command(file), Cwd: workspace, Timeout: req.Timeout, File: file, Source: todo.Source, Artifacts: wanted(req.Artifacts)}
	output := todo.Output(out)
	ctx, e := p.begin(ctx, req, sb)
	defer p.finish(e)
	began := time.Now()
	report, err := p.supervise(ctx, sb, what, envd.StartOptions{}, sink{output.Stdout, output.Stderr}, e.reached)
	took := time.Since(began)
	if err != nil && !errors.Is(err, errInterrupted) {
		return sdk.ExecuteResult{}, err
	}
	exit := 128 + 9 // of code that was killed
	if report.Exit != nil {
		exit = *report.Exit
		took = time.Duration(report.Seconds * float64(time.Second))
	}
	result, err := output.Finish(exit)
	if err != nil {
		return result, err
	}
	result.Duration, result.PeakMemoryBytes = took, report.Peak
	settle(&result, report)
	if e.isInterrupted() {
		result.Status, result.Result, result.Detail = sdk.StatusCancelled, nil, ""
		return result, nil
	}
	files, err := p.withPatterns(ctx, req.InstanceID, req.Artifacts, report.Files)
	if err != nil {
		return result, sdk.ExecutionError(err, true)
	}
	return result, sdk.ExecutionError(p.sendFiles(ctx, sb, files, req.Artifacts, output), true)
}

// settle adds what the supervisor knows to what the code's exit code says.
func settle(result *sdk.ExecuteResult, report supervisor.Report) {
	switch {
	case report.Why == supervisor.Timeout:
		result.Status, result.Result, result.Detail = sdk.StatusTimeout, nil, ""
	case report.Memory && result.ExitCode != 0:
		result.Status, result.Result, result.Detail = sdk.StatusOutOfMemory, nil, ""
	case report.Refused != "":
		result.Status, result.ExitCode, result.Detail = sdk.StatusFailed, 127, "the template has no interpreter of this language"
	case report.Exit == nil:
		result.Status, result.Detail = sdk.StatusFailed, "the processes of the execution were killed, by code in the instance or for want of memory"
	}
}

// executionName tells executions apart.
type executionName struct{ instance, id string }

// execution is one in progress.
type execution struct {
	name executionName
	sb   *sandbox
	stop context.CancelCauseFunc

	mu          sync.Mutex
	pid         int  // of the supervisor; 0 where there is none
	kernel      bool // it runs in a kernel
	interrupted bool
}

var errInterrupted = errors.New("interrupted")

// begin makes an execution known to Interrupt.
func (p *Provider) begin(ctx context.Context, req sdk.ExecuteRequest, sb *sandbox) (context.Context, *execution) {
	ctx, stop := context.WithCancelCause(ctx)
	e := &execution{name: executionName{req.InstanceID, req.ExecutionID}, sb: sb, stop: stop}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[e.name] = e
	return ctx, e
}

func (p *Provider) finish(e *execution) {
	e.stop(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[e.name] == e {
		delete(p.running, e.name)
	}
}

func (e *execution) reached(pid int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pid = pid
}

// inKernel says that it runs, in a kernel.
func (e *execution) inKernel() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kernel = true
}

// supervisor is its PID.
func (e *execution) supervisor() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pid
}

func (e *execution) isInterrupted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.interrupted
}
