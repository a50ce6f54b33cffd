package provider

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/cell"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/interpreter"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/frames"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// cellRun is a kernel.Kernel: one of the code interpreter, for one execution in it.
type cellRun struct {
	c   *codeContext
	req sdk.ExecuteRequest

	marker string
	filter *frames.Filter
	// event takes what comes out of the filter.
	event func(kernel.Event) error
	value json.RawMessage
	end   kernelEnd
	// restarted says that the code interpreter has started another kernel.
	restarted bool
}

var _ kernel.Kernel = (*cellRun)(nil)

// execute runs code in a kernel that keeps its state.
func (c *codeContext) execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	if req.Language != "" && req.Language != c.state.Language {
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "the context is one of %s", c.state.Language)
	}
	if err := checkCell(c.state.Language, req); err != nil {
		return sdk.ExecuteResult{}, err
	}
	release, err := c.takeTurn(ctx)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	defer release()
	running, over := c.sb.p.Begin(req)
	defer over()
	cells := &cellRun{c: c, req: req, marker: frames.NewMarker()}
	cells.filter = frames.NewFilter(cells.marker, int(min(req.OutputLimit, 32<<20)), func(b []byte) error {
		return cells.event(kernel.Event{Stdout: b})
	}, func(payload []byte) bool {
		cells.value = slices.Clone(payload)
		return json.Valid(payload)
	})
	run := kernel.Run{
		Kernel: cells, Request: req, Out: out, Language: c.state.Language, Execution: running, Files: c.sb.finder(),
		Limit: req.Timeout, Grace: c.sb.p.patience.kernels,
	}
	return run.Do(ctx)
}

// checkCell refuses what there are no cells of ours for.
func checkCell(language sdk.Language, req sdk.ExecuteRequest) error {
	switch {
	case cell.Supports(language):
		return nil
	case req.Arguments != nil:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "there are none for %s", language)
	case len(req.Env) > 0:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env", "there is none for %s", language)
	}
	return nil
}

// Ready implements kernel.Kernel.
func (r *cellRun) Ready(ctx context.Context) error {
	if err := r.c.furnish(ctx); err != nil {
		return err
	}
	return r.c.findKernel(ctx)
}

// Before implements kernel.Kernel: it sets variables.
func (r *cellRun) Before() string {
	if len(r.req.Env) == 0 {
		return ""
	}
	return cell.SetEnv(r.c.state.Language, r.req.Env)
}

// After implements kernel.Kernel: it puts them back.
func (r *cellRun) After() string {
	if len(r.req.Env) == 0 || r.restarted {
		return ""
	}
	return cell.RestoreEnv(r.c.state.Language)
}

// Call implements kernel.Kernel. The result comes in a frame among the output.
func (r *cellRun) Call() string {
	return cell.Call(r.c.state.Language, r.req.Arguments, r.marker, r.req.OutputLimit)
}

// Cell implements kernel.Kernel.
func (r *cellRun) Cell(ctx context.Context, code string, event func(kernel.Event) error) (ended bool, err error) {
	r.event = event
	err = r.c.sb.interpreter().Execute(ctx, r.c.state.ID, code, func(ev kernel.Event) error {
		if len(ev.Stdout) > 0 {
			return r.filter.Write(ev.Stdout)
		}
		r.restarted = r.restarted || ev.Error != nil && ev.Error.Name == interpreter.Restarted
		return event(ev)
	})
	return err == nil, err
}

// Drain implements kernel.Kernel.
func (r *cellRun) Drain(_ context.Context, event func(kernel.Event) error) (json.RawMessage, error) {
	r.event = event
	return r.value, r.filter.Close()
}

// Settled implements kernel.Kernel.
func (r *cellRun) Settled(ctx context.Context, failed kernel.Error, result *sdk.ExecuteResult) error {
	switch {
	case failed.Name == interpreter.Restarted:
		if r.c.gone.Err() != nil {
			return r.Lost()
		}
		r.c.furnished(false)
		result.ExitCode, result.Detail = 128+9, kernel.Ended
		if r.c.sb.memoryKills(ctx) {
			result.Status, result.Detail = sdk.StatusOutOfMemory, kernel.Killed
		}
	case interpreter.Interrupted(failed):
		r.c.furnished(false)
		result.Detail = "the connection to the interpreter was lost within the sandbox; the context may have started afresh"
	}
	return nil
}

// Restart implements kernel.Kernel.
func (r *cellRun) Restart(context.Context) error {
	ctx, cancel := context.WithTimeout(r.c.sb.gone, stopTimeout)
	defer cancel()
	return r.c.restart(ctx)
}

// Gone implements kernel.Kernel.
func (r *cellRun) Gone() <-chan struct{} { return r.c.gone.Done() }

// Lost implements kernel.Kernel.
func (r *cellRun) Lost() error {
	if r.c.sb.gone.Err() != nil {
		return errNoInstance
	}
	return errNoContext()
}

// Class implements kernel.Kernel. The code interpreter interrupts nothing, so that code goes
// on when the connection is lost.
func (r *cellRun) Class(err error) kernel.Class {
	switch {
	case refused(err):
		return kernel.Refused
	case isLost(err):
		return kernel.Open
	default:
		return kernel.Failed
	}
}

// Explain implements kernel.Kernel.
func (r *cellRun) Explain(ctx context.Context, err error) error {
	if lacksContext(err, r.c.state.ID) {
		r.c.drop()
		return errNoContext()
	}
	return r.c.sb.explain(ctx, err)
}
