package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/cell"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/interpreter"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/frames"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/stream"
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
	// death is how the interpreter has ended within a cell, as Watch has found it.
	death *kernel.Death
	// restarted says that the code interpreter has started another kernel.
	restarted bool
}

var _ kernel.Kernel = (*cellRun)(nil)

// execute runs code in a kernel that keeps its state.
func (c *codeContext) execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	if err := checkCell(c.Language, req); err != nil {
		return sdk.ExecuteResult{}, err
	}
	release, err := c.sb.p.Take(ctx, c.sb, c, req.Language)
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
		Kernel: cells, Request: req, Out: out, Language: c.Language, Execution: running, Files: c.sb.finder(),
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
	return cell.SetEnv(r.c.Language, r.req.Env)
}

// After implements kernel.Kernel: it puts them back.
func (r *cellRun) After() string {
	if len(r.req.Env) == 0 || r.restarted {
		return ""
	}
	return cell.RestoreEnv(r.c.Language)
}

// Call implements kernel.Kernel. The result comes in a frame among the output.
func (r *cellRun) Call() string {
	return cell.Call(r.c.Language, r.req.Arguments, r.marker, r.req.OutputLimit)
}

// Cell implements kernel.Kernel.
func (r *cellRun) Cell(ctx context.Context, code string, event func(kernel.Event) error) (ended bool, err error) {
	r.event = event
	err = r.c.sb.interpreter().Execute(ctx, r.c.ID, code, func(ev kernel.Event) error {
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
		if r.c.Gone().Err() != nil {
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
	return r.c.Restart(ctx)
}

// Gone implements kernel.Kernel.
func (r *cellRun) Gone() <-chan struct{} { return r.c.Gone().Done() }

// Lost implements kernel.Kernel.
func (r *cellRun) Lost() error {
	if r.c.sb.gone.Err() != nil {
		return errNoInstance
	}
	return contexts.ErrNoContext()
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
	if lacksContext(err, r.c.ID) {
		return r.c.missing()
	}
	return r.c.sb.explain(ctx, err)
}

// asKernels is a client of envd as the user that kernels belong to; it takes any name.
func (sb *sandbox) asKernels() *envd.Client {
	return envd.New(sb.endpoint(envd.Port, sb.p.streams), "root")
}

// findKernel learns the PID of what runs the cells, once for each kernel: Python is sure to
// go on after a SIGINT, and that JavaScript has ended is told by nobody else. The code
// interpreter itself interrupts nothing that it can be relied upon for.
func (c *codeContext) findKernel(ctx context.Context) error {
	c.mu.Lock()
	known := c.pid != 0
	c.mu.Unlock()
	show := cell.ShowPID(c.Language)
	if known || show == "" {
		return nil
	}
	var text bytes.Buffer
	err := c.sb.interpreter().Execute(ctx, c.ID, show, func(ev kernel.Event) error {
		text.Write(ev.Stdout)
		return nil
	})
	if err != nil {
		return err
	}
	// Whatever the code has made of print, this is no more than a kernel without a PID.
	if pid, err := strconv.Atoi(string(bytes.TrimSpace(text.Bytes()))); err == nil && pid > 1 {
		c.mu.Lock()
		c.pid = pid
		c.mu.Unlock()
	}
	return nil
}

// Interrupt implements kernel.Kernel.
func (r *cellRun) Interrupt(ctx context.Context) bool {
	r.c.mu.Lock()
	pid := r.c.pid
	r.c.mu.Unlock()
	if pid == 0 || r.c.Gone().Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	defer context.AfterFunc(r.c.Gone(), cancel)()
	err := r.c.sb.interruptKernel(ctx, pid)
	if err != nil {
		r.c.sb.p.logger.Debug("a kernel could not be interrupted; it is restarted", "sandbox", r.c.sb.id, "error", r.c.sb.p.failure(err))
	}
	return err == nil
}

// interruptKernel sends a SIGINT to a kernel and what it has started.
func (sb *sandbox) interruptKernel(ctx context.Context, pid int) error {
	program := envd.Program{Cmd: "/bin/sh", Args: []string{"-c", `kill -INT -- "-$0" 2>/dev/null || kill -INT "$0"`, strconv.Itoa(pid)}, Cwd: "/"}
	process, err := sb.asKernels().Start(ctx, program, envd.StartOptions{Limit: stopTimeout})
	if err != nil {
		return err
	}
	defer process.Close()
	_, exit, err := collect(process)
	if err == nil && exit != 0 {
		err = errors.New("no such kernel")
	}
	return err
}

// watchAfter is how long a cell may run before somebody looks whether what runs it is
// there yet: most are over before.
const watchAfter = 500 * time.Millisecond

// endScript waits for the end of a process and prints what it has written of it. It leaves that
// there: one that an earlier cell has left waiting may be beside it.
const endScript = `while kill -0 "$0" 2>/dev/null; do sleep 0.3; done; grep -qs 'heap out of memory' "$1" && echo memory || head -c 20 "$1" 2>/dev/null`

// Watch implements kernel.Kernel. The interpreter of JavaScript is a child of its kernel,
// which does not notice, so that the code interpreter says nothing for ever.
func (r *cellRun) Watch(over <-chan struct{}, giveUp func()) {
	if language := r.c.Language; language != sdk.JavaScript && language != sdk.TypeScript {
		return
	}
	r.c.mu.Lock()
	pid := r.c.pid
	r.c.mu.Unlock()
	wait := time.NewTimer(watchAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-over:
		return
	}
	ctx, stop := context.WithCancel(r.c.sb.gone)
	defer stop()
	go func() {
		select {
		case <-over:
			stop()
		case <-ctx.Done():
		}
	}()
	text, err := r.c.awaitEnd(ctx, pid, r.req.Timeout)
	if err != nil || ctx.Err() != nil || pid == 0 {
		return
	}
	r.death = &kernel.Death{Exit: 128 + 9, Memory: bytes.HasPrefix(text, []byte("memory"))}
	if code, found := bytes.CutPrefix(text, []byte("exit ")); found {
		if exit, err := strconv.Atoi(string(bytes.TrimSpace(code))); err == nil {
			r.death.Exit = exit & 0xff
		}
	}
	giveUp()
}

// awaitEnd waits for the end of the interpreter of a context.
func (c *codeContext) awaitEnd(ctx context.Context, pid int, within time.Duration) ([]byte, error) {
	program := envd.Program{Cmd: "/bin/sh", Args: []string{"-c", endScript, strconv.Itoa(pid), c.endFile()}, Cwd: "/"}
	process, err := c.sb.asKernels().Start(ctx, program, envd.StartOptions{Limit: within + envdGrace})
	if err != nil {
		return nil, err
	}
	defer func() {
		process.Close()
		if ctx.Err() != nil { // it waits yet, and nobody needs it; it may have ended by itself
			ending, cancel := context.WithTimeout(c.sb.gone, stopTimeout)
			defer cancel()
			_ = c.sb.asKernels().SendSignal(ending, process.PID, envd.SignalKill)
		}
	}()
	text, _, err := collect(process)
	return text, err
}

// Died implements kernel.Kernel.
func (r *cellRun) Died(ctx context.Context, _ error) (kernel.Death, bool) {
	if r.death == nil {
		return kernel.Death{}, false
	}
	killed := r.c.sb.memoryKills(ctx)
	return kernel.Death{Exit: r.death.Exit, Memory: killed || r.death.Memory}, true
}

// memoryKills looks whether the kernel of the sandbox has killed a process for memory
// since the last look: nobody else tells why an interpreter has ended. A look that fails
// shows nothing.
func (sb *sandbox) memoryKills(ctx context.Context) (more bool) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	counter := stream.Program{Argv: []string{"grep", "-m1", "^oom_kill ", "/proc/vmstat"}}
	text, _, err := sb.script(ctx, counter)
	if err != nil {
		sb.p.logger.Debug("it could not be seen whether memory is short", "sandbox", sb.id, "error", err)
		return false
	}
	_, number, _ := bytes.Cut(bytes.TrimSpace(text), []byte(" "))
	kills, err := strconv.ParseInt(string(number), 10, 64)
	return err == nil && sb.noteKills(kills)
}

// noteKills takes down how many processes were killed, and says whether that are more
// than at the last look. At the first one nobody knows.
func (sb *sandbox) noteKills(kills int64) (more bool) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	more = sb.kills >= 0 && kills > sb.kills
	sb.kills = max(sb.kills, kills)
	return more
}
