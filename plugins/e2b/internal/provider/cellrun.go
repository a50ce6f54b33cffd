package provider

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/cell"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/frames"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/interpreter"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Why a cell was stopped, beside the end of its caller's context.
var errCellTimeout = errors.New("its time is over")

// cellRun is one execution in a context.
type cellRun struct {
	p   *Provider
	c   *codeContext
	req sdk.ExecuteRequest
	out sdk.Output

	filter *frames.Filter
	value  json.RawMessage
	failed *interpreter.Error
	groups int
	// begun says that some of the code may run, or has run.
	begun bool
	end   kernelEnd
	// own is the cell that calls main, while it runs.
	own string
}

// executeInContext runs code in a kernel that keeps its state.
func (p *Provider) executeInContext(ctx context.Context, c *codeContext, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
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
	ctx, e := p.begin(ctx, req, c.sb)
	defer p.finish(e)
	run := &cellRun{p: p, c: c, req: req, out: out}
	result, err := run.run(ctx, e)
	return result, sdk.ExecutionError(err, run.begun)
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

func (r *cellRun) run(ctx context.Context, e *execution) (sdk.ExecuteResult, error) {
	before, err := r.p.artifactFiles(ctx, r.req)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	if err := r.p.furnish(ctx, r.c); err != nil {
		return sdk.ExecuteResult{}, r.explain(ctx, err)
	}
	if err := r.p.findKernel(ctx, r.c); err != nil {
		return sdk.ExecuteResult{}, r.explain(ctx, err)
	}
	e.inKernel()
	// The code is to stop at the end of stopping; at the end of listening, which may be
	// a little later, the connection is closed.
	stopping, cancel := context.WithTimeoutCause(ctx, r.req.Timeout, errCellTimeout)
	defer cancel()
	stopping, stop := context.WithCancelCause(stopping)
	defer stop(nil)
	defer context.AfterFunc(r.c.sb.gone, func() { stop(errNoInstance) })()
	listening, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	over := make(chan struct{})
	var watched sync.WaitGroup
	watched.Go(func() { r.stopSoftly(stopping, over, giveUp) })
	watched.Go(func() { r.watchKernel(over, giveUp) })
	began := time.Now()
	err = r.cells(listening, stopping)
	close(over)
	watched.Wait()
	result := sdk.ExecuteResult{Duration: time.Since(began)}
	if err != nil && r.end.told() && stopping.Err() == nil {
		return r.died(ctx, result)
	}
	if err != nil {
		return r.stopped(ctx, stopping, result, e, err)
	}
	if closed := r.filter.Close(); closed != nil {
		return result, closed
	}
	if err := r.settle(context.WithoutCancel(ctx), &result); err != nil {
		return result, err
	}
	if cause := context.Cause(stopping); cause != nil {
		return r.obeyed(result, e, cause)
	}
	return result, r.p.sendNewFiles(ctx, r.c.sb, before, r.req, r.out)
}

// obeyed says what became of code that was to stop and came to an end, so that its
// context goes on.
func (r *cellRun) obeyed(result sdk.ExecuteResult, e *execution, cause error) (sdk.ExecuteResult, error) {
	switch {
	case e.isInterrupted():
		result.Status = sdk.StatusCancelled
	case errors.Is(cause, errCellTimeout):
		result.Status = sdk.StatusTimeout
	default:
		return result, cause
	}
	result.Result = nil
	if result.ExitCode == 0 {
		result.ExitCode = 128 + 2
	}
	return result, nil
}

// cells runs the code, and around it what its environment and arguments need. None is
// begun when stopping has ended.
func (r *cellRun) cells(ctx, stopping context.Context) error {
	language := r.c.state.Language
	marker := frames.NewMarker()
	r.filter = frames.NewFilter(marker, int(min(r.req.OutputLimit, 32<<20)), r.out.Stdout, func(payload []byte) bool {
		r.value = slices.Clone(payload)
		return json.Valid(payload)
	})
	if len(r.req.Env) > 0 {
		if err := r.p.silently(ctx, r.c, cell.SetEnv(language, r.req.Env)); err != nil {
			return err
		}
	}
	codes := []string{r.req.Code}
	if r.req.Arguments != nil {
		codes = append(codes, cell.Call(language, r.req.Arguments, marker, r.req.OutputLimit))
	}
	for i, code := range codes {
		if r.failed != nil || stopping.Err() != nil {
			break
		}
		if i > 0 {
			r.own = code
		}
		err := r.p.interpreter(r.c.sb).Execute(ctx, r.c.state.ID, code, r.event)
		r.begun = r.begun || !refused(err)
		if err != nil {
			return err
		}
	}
	if len(r.req.Env) > 0 && (r.failed == nil || r.failed.Name != interpreter.Restarted) {
		return r.p.silently(ctx, r.c, cell.RestoreEnv(language))
	}
	return nil
}

// event passes on what a cell does.
func (r *cellRun) event(ev interpreter.Event) error {
	var err error
	switch {
	case ev.Stdout != "":
		err = r.filter.Write([]byte(ev.Stdout))
	case ev.Stderr != "":
		err = r.out.Stderr([]byte(ev.Stderr))
	case ev.Error != nil:
		r.failed = ev.Error
		if text := trace(ev.Error, r.own); text != "" {
			err = r.out.Stderr([]byte(text))
		}
	case ev.Result != nil && r.req.Artifacts != nil:
		err = r.result(ev.Result)
	}
	if err != nil {
		return &sinkError{err}
	}
	return nil
}

// result passes on a value, in all its forms.
func (r *cellRun) result(value *interpreter.Result) error {
	kind := sdk.ArtifactDisplay
	if value.Main {
		kind = sdk.ArtifactResult
	}
	r.groups++
	var types []string
	for mime := range value.Forms {
		types = append(types, mime)
	}
	slices.Sort(types)
	for _, mime := range types {
		data := value.Forms[mime]
		if err := r.out.Artifact(sdk.Artifact{Kind: kind, MIMEType: mime, Data: data, Size: int64(len(data)), Group: r.groups}); err != nil {
			return err
		}
	}
	return nil
}

// settle says what became of code that came to its end.
func (r *cellRun) settle(ctx context.Context, result *sdk.ExecuteResult) error {
	result.Status, result.Result = sdk.StatusSucceeded, r.value
	if r.failed == nil {
		if r.req.Arguments != nil && r.value == nil {
			result.Status, result.ExitCode, result.Detail = sdk.StatusFailed, 1, "the result did not arrive: the code ended the interpreter itself, or the service has cut the output"
		}
		return nil
	}
	result.Result = nil
	result.Status, result.ExitCode = sdk.StatusFailed, exitCode(r.failed)
	switch {
	case r.failed.Name == interpreter.Restarted:
		select {
		case <-r.c.gone:
			return errNoContext()
		default:
		}
		r.p.furnished(r.c, false)
		result.ExitCode = 128 + 9
		result.Detail = "the interpreter has ended; the context starts afresh"
		if r.p.memoryKills(ctx, r.c.sb) {
			result.Status, result.Detail = sdk.StatusOutOfMemory, "the interpreter was killed for want of memory; the context starts afresh"
		}
	case r.failed.Interrupted():
		r.p.furnished(r.c, false)
		result.Detail = "the connection to the interpreter was lost within the sandbox; the context may have started afresh"
	case r.failed.Name == "MemoryError":
		result.Status = sdk.StatusOutOfMemory
	case result.ExitCode == 0:
		result.Status = sdk.StatusSucceeded
	}
	return nil
}

// exitCode is that of a process that ends with such an error.
func exitCode(e *interpreter.Error) int {
	switch e.Name {
	case "SystemExit":
		if e.Value == "" || e.Value == "None" {
			return 0
		}
		if code, err := strconv.Atoi(e.Value); err == nil {
			return code & 0xff
		}
	case "KeyboardInterrupt":
		return 130
	}
	return 1
}

// colours are what terminals show as such.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// trace is what a process would show on standard error. A cell of our own is nothing to
// show.
func trace(e *interpreter.Error, own string) string {
	text := strings.TrimRight(colours.ReplaceAllString(e.Traceback, ""), "\n")
	if own != "" {
		text = strings.ReplaceAll(text, own, "main(…)")
	}
	if e.Name == "SystemExit" {
		if _, err := strconv.Atoi(e.Value); err == nil || e.Value == "" || e.Value == "None" {
			return ""
		}
		return e.Value + "\n"
	}
	if text == "" && e.Name != interpreter.Restarted {
		text = e.Name + ": " + e.Value
	}
	if text == "" {
		return ""
	}
	return text + "\n"
}

// stopped says what became of code that did not come to its end, and ends it.
func (r *cellRun) stopped(ctx, stopping context.Context, result sdk.ExecuteResult, e *execution, err error) (sdk.ExecuteResult, error) {
	select {
	case <-r.c.gone:
		return result, errNoContext()
	case <-r.c.sb.gone.Done():
		return result, errNoInstance
	default:
	}
	cause := context.Cause(stopping)
	ours, failedOutput := errors.AsType[*sinkError](err)
	if cause == nil && !failedOutput && !isLost(err) {
		return result, r.explain(ctx, err)
	}
	// The code may still run: the server does not interrupt it, so the kernel ends.
	ending, cancel := context.WithTimeout(r.c.sb.gone, stopTimeout)
	defer cancel()
	restarted := r.p.restart(ending, r.c)
	switch {
	case failedOutput:
		return result, ours.error
	case cause == nil:
		return result, r.explain(ctx, err)
	case errors.Is(cause, errCellTimeout), e.isInterrupted():
		result.Status, result.ExitCode, result.Detail = sdk.StatusTimeout, 128+9, "the context starts afresh: the code could not be stopped otherwise"
		if e.isInterrupted() {
			result.Status = sdk.StatusCancelled
		}
		if closed := r.filter.Close(); closed != nil {
			return result, closed
		}
		if restarted != nil {
			return result, restarted
		}
		return result, nil
	}
	return result, cause
}

func (r *cellRun) explain(ctx context.Context, err error) error {
	if lacksContext(err, r.c.state.ID) {
		r.p.dropContext(r.c)
		return errNoContext()
	}
	return r.p.explain(ctx, r.c.sb, err)
}

// executeCell runs code in a kernel of its own, for languages that have no other
// interpreter in the template.
func (p *Provider) executeCell(ctx context.Context, sb *sandbox, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	if err := checkCell(req.Language, req); err != nil {
		return sdk.ExecuteResult{}, err
	}
	c, err := p.newContext(ctx, sb, sdk.CreateContextRequest{Language: req.Language})
	if err != nil {
		return sdk.ExecuteResult{}, sdk.ExecutionError(err, false)
	}
	defer func() {
		ending, cancel := context.WithTimeout(sb.gone, stopTimeout)
		defer cancel()
		if err := p.deleteContext(ending, c); err != nil && ending.Err() == nil {
			p.logger.Warn("a kernel may be left in a sandbox", "sandbox", sb.id, "error", err)
		}
	}()
	return p.executeInContext(ctx, c, req, out)
}

// globalEnv is the environment that the sandbox was made with. It never changes.
func (p *Provider) globalEnv(ctx context.Context, sb *sandbox) (map[string]string, error) {
	sb.mu.Lock()
	env := sb.env
	sb.mu.Unlock()
	if env != nil {
		return env, nil
	}
	err := p.envd(ctx, sb, func(c *envd.Client) (err error) {
		env, err = c.Envs(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	sb.mu.Lock()
	sb.env = env
	sb.mu.Unlock()
	return env, nil
}
