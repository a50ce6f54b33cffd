package provider

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/cell"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/guest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Why code in a kernel was stopped, beside the end of its caller's context.
var (
	errCellTimeout = errors.New("its time is over")
	errInterrupted = errors.New("it was interrupted")
)

const (
	// streamAfter is how long code runs before somebody looks for its output: most
	// code has ended by then.
	streamAfter = 200 * time.Millisecond

	afresh     = "the context starts afresh: the code could not be stopped otherwise"
	hasEnded   = "the interpreter has ended; the context starts afresh"
	restarted  = "the context was restarted"
	noResult   = "the result did not arrive: the code ended the interpreter itself"
	cutShorter = "the time limit of this provider is shorter than the one asked for"
)

// cellRun is one execution in a context.
type cellRun struct {
	p     *Provider
	box   sandbox
	saved savedContext
	c     *codeContext
	req   sdk.ExecuteRequest
	out   sdk.Output
	// name is that of its place in the sandbox.
	name string
	// renewed is closed when somebody else ends the kernel.
	renewed <-chan struct{}

	stdout, stderr int64 // what has been passed on
	kills          int64
	value          json.RawMessage
	failed         *agentrun.Item
	groups         int
	// begun says that some of the code may run, or has run.
	begun bool
}

// executeInContext runs code in a kernel that keeps its state.
func (p *Provider) executeInContext(ctx context.Context, box sandbox, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	var fields map[string]json.RawMessage
	if req.Arguments != nil && (json.Unmarshal(req.Arguments, &fields) != nil || fields == nil) {
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "must be a JSON object")
	}
	saved, c, err := p.takeTurn(ctx, box.ID, req.ContextID)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	defer func() { <-c.turn }()
	if req.Language != "" && string(req.Language) != saved.Language {
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "the context is one of %s", saved.Language)
	}
	var before map[string]string
	if req.Artifacts != nil {
		if before, _, err = p.marks(ctx, box, nil); err != nil {
			return sdk.ExecuteResult{}, sdk.ExecutionError(err, false)
		}
	}
	r := &cellRun{p: p, box: box, saved: saved, c: c, req: req, out: out}
	result, err := r.run(ctx)
	if err != nil {
		return result, sdk.ExecutionError(err, r.begun)
	}
	return result, sdk.ExecutionError(p.sendNewFiles(ctx, box, before, req.Artifacts, out), true)
}

// begin leads the output of the kernel to where it can be seen. A kernel that is gone
// is replaced.
func (r *cellRun) begin(ctx context.Context) error {
	for first := true; ; first = false {
		r.renewed, r.name = r.c.kernel(), newName()
		code := cell.Begin(sdk.Language(r.saved.Language), cell.Start{ID: r.name, Env: r.box.env(r.saved.Env, r.req.Env)})
		result, err := r.p.data.ExecuteCode(ctx, r.box.ID, r.saved.Kernel, code, maxTimeout)
		item, failed := failure(result)
		if err == nil && !failed {
			return nil
		}
		if ctx.Err() != nil || !first || failed || !isMissing(err) {
			if failed {
				err = sdk.Errorf(sdk.CodeUnavailable, "the kernel cannot be used: %.300s", item.Trace())
			}
			return r.p.explain(ctx, err, sdk.CodeUnavailable, "use the kernel")
		}
		if err := r.p.restart(ctx, r.box, r.req.ContextID); err != nil {
			return err
		}
		if r.saved, _, err = r.p.use(r.box.ID, r.req.ContextID); err != nil {
			return err
		}
	}
}

func (r *cellRun) run(ctx context.Context) (sdk.ExecuteResult, error) {
	if err := r.begin(ctx); err != nil {
		return sdk.ExecuteResult{}, err
	}
	limit := r.p.limit(r.req)
	timed, cancel := context.WithTimeoutCause(ctx, limit, errCellTimeout)
	defer cancel()
	timed, stop := context.WithCancelCause(timed)
	defer stop(nil)
	defer r.p.running.add(r.req, &execution{sandbox: r.box, program: r.name, stop: func() { stop(errInterrupted) }})()
	began := time.Now()
	codes := []string{r.req.Code}
	if r.req.Arguments != nil {
		codes = append(codes, cell.Call(sdk.Language(r.saved.Language), r.req.Arguments, r.req.OutputLimit))
	}
	var end ending
	for _, code := range codes {
		if end == (ending{}) && r.failed == nil {
			end = r.cell(timed, code)
			r.begun = r.begun || !denied(end.err)
		}
	}
	result := sdk.ExecuteResult{Status: sdk.StatusSucceeded, Duration: time.Since(began)}
	if end == (ending{}) {
		if err := r.drain(ctx); err != nil {
			return result, err
		}
		r.settle(&result)
		return result, nil
	}
	return r.ended(ctx, result, end, limit < r.req.Timeout)
}

// ending says how a cell ended that has not answered by itself.
type ending struct {
	// cause is why it was stopped; nil if it was not.
	cause error
	// err is why there is no answer.
	err error
	// kept says that the kernel goes on with its state.
	kept bool
}

// cell runs one cell, and passes on its output meanwhile.
func (r *cellRun) cell(timed context.Context, code string) ending {
	type reply struct {
		result agentrun.CodeResult
		err    error
	}
	// The call outlives the time limit: the answer tells whether an interrupt helped.
	calling, abandon := context.WithCancel(context.WithoutCancel(timed))
	replies := make(chan reply, 1)
	go func() {
		result, err := r.p.data.ExecuteCode(calling, r.box.ID, r.saved.Kernel, code, maxTimeout)
		replies <- reply{result, err}
	}()
	waiting := true
	defer func() {
		abandon()
		if waiting {
			<-replies
		}
	}()
	streaming, silence := context.WithCancelCause(timed)
	streamed := make(chan error, 1)
	go func() { streamed <- r.stream(streaming) }()
	quiet := func() error {
		silence(nil)
		return <-streamed
	}

	select {
	case got := <-replies:
		waiting = false
		if err := quiet(); err != nil {
			return ending{cause: err, kept: true}
		}
		if got.err != nil {
			return ending{err: got.err}
		}
		if err := r.take(got.result); err != nil {
			return ending{cause: err, kept: true}
		}
		return ending{}
	case err := <-streamed: // nobody listens any more, or the time is over
		cause := context.Cause(timed)
		if cause == nil {
			cause = err
		}
		kept := false
		if sdk.Language(r.saved.Language) == sdk.Python && r.interrupt(timed) {
			select {
			case got := <-replies:
				waiting = false
				if kept = got.err == nil; kept {
					_ = r.take(got.result) // why it was stopped is what counts
				}
			case <-time.After(sdk.InterruptGrace):
			case <-r.renewed:
			}
		}
		return ending{cause: cause, kept: kept}
	case <-r.renewed:
		_ = quiet() // the kernel is gone, which is what counts
		return ending{err: errNoContext()}
	}
}

// interrupt does what Ctrl-C does. A kernel that belongs to another user cannot be
// interrupted.
func (r *cellRun) interrupt(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	return guest.Poke(ctx, r.box, r.name, "SIGINT") == nil
}

// stream passes on output until ctx ends; a failure of the sandbox is left to drain. It
// returns when there is a reason to stop the code, or ctx has ended.
func (r *cellRun) stream(ctx context.Context) error {
	if pause(ctx, streamAfter) == nil {
		for {
			progress, unseen := watch(ctx, r.box, r.name, r.stdout, r.stderr)
			if unseen != nil {
				break
			}
			if err := r.pass(progress); err != nil {
				return err
			}
		}
	}
	<-ctx.Done()
	return nil //nolint:nilerr // what could not be seen is left to drain
}

// pass passes on output.
func (r *cellRun) pass(progress guest.Progress) error {
	r.stdout += int64(len(progress.Stdout))
	r.stderr += int64(len(progress.Stderr))
	if len(progress.Stdout) > 0 {
		if err := r.out.Stdout(progress.Stdout); err != nil {
			return err
		}
	}
	if len(progress.Stderr) > 0 {
		return r.out.Stderr(progress.Stderr)
	}
	return nil
}

// drain passes on what is left, and finds the result of main.
func (r *cellRun) drain(ctx context.Context) error {
	for {
		progress, err := ask(ctx, func(ctx context.Context) (guest.Progress, error) {
			return guest.Look(ctx, r.box, r.name, r.stdout, r.stderr)
		})
		if err != nil {
			return r.p.explain(ctx, err, sdk.CodeUnavailable, "read the output")
		}
		r.kills = progress.Kills
		if len(progress.Stdout)+len(progress.Stderr) == 0 {
			if json.Valid([]byte(progress.Result)) {
				r.value = json.RawMessage(progress.Result)
			}
			break
		}
		if err := r.pass(progress); err != nil {
			return err
		}
	}
	if r.failed == nil {
		return nil
	}
	if text := traceOf(*r.failed); text != "" {
		return r.out.Stderr([]byte(text))
	}
	return nil
}
