package provider

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/stream"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
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
		c, err := p.Find(ctx, sb.id, req.ContextID, sb)
		if err != nil {
			return sdk.ExecuteResult{}, sdk.ExecutionError(err, false)
		}
		return c.execute(ctx, req, out)
	}
	switch req.Language {
	case sdk.TypeScript, sdk.R, sdk.Java:
		return sb.executeCell(ctx, req, out)
	default:
		return sb.executeProcess(ctx, req, out)
	}
}

// executeProcess runs code as a process of its own.
func (sb *sandbox) executeProcess(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	todo, err := program.ForProcess(req, program.Options{Dir: remote.Workspace})
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	file := "/tmp/.sandbox-" + remote.NewName() + todo.Suffix
	what := stream.Job{Argv: todo.Command(file), Cwd: remote.Workspace, Timeout: req.Timeout, File: file, Source: todo.Source, Artifacts: artifacts.Wanted(req.Artifacts)}
	output := todo.Output(out)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	running, end := sb.p.Begin(req)
	defer end()
	began := time.Now()
	done, err := sb.supervise(ctx, what, envd.StartOptions{}, sink{output.Stdout, output.Stderr}, func(pid int) {
		running.Reached(func(ctx context.Context) error {
			// Whatever becomes of the signal, the code does not run for longer.
			time.AfterFunc(sdk.InterruptGrace, func() { stop(errInterrupted) })
			// It comes from a process in the sandbox: after one of envd's own, output would be lost.
			_, _, err := sb.script(ctx, stream.Interrupt(pid))
			return err
		})
	})
	if err != nil && !errors.Is(err, errInterrupted) {
		return sdk.ExecuteResult{}, err
	}
	result, err := finish(output, done, time.Since(began))
	if err != nil {
		return result, err
	}
	if running.Interrupted() {
		result.Status, result.Result, result.Detail = sdk.StatusCancelled, nil, ""
		return result, nil
	}
	if done == nil || done.Reason != "" {
		return result, nil
	}
	return result, sdk.ExecutionError(sb.finder().Send(ctx, done.Files, req.Artifacts, output), true)
}

// finder finds what an execution has made. It makes artifacts/ for code in kernels, which
// are root's: in a directory of theirs other code could not write.
func (sb *sandbox) finder() artifacts.Finder {
	return artifacts.Finder{Store: store{sb.p}, Instance: sb.id, Most: maxListed, Make: true}
}

// finish says what became of code, by what its supervisor has told, if anything.
func finish(output *program.Output, done *supervise.Done, took time.Duration) (sdk.ExecuteResult, error) {
	if done == nil { // it was killed
		result, err := output.Finish(128 + 9)
		result.Duration, result.Detail = took, "the processes of the execution were killed, by code in the instance or for want of memory"
		return result, err
	}
	result, err := output.Finish(done.Exit)
	result.Duration, result.PeakMemoryBytes = time.Duration(done.Seconds*float64(time.Second)), done.Peak
	done.Settle(&result)
	if done.Error != "" {
		result.Detail = "the template has no interpreter of this language"
	}
	return result, err
}

var errInterrupted = errors.New("interrupted")

// executeCell runs code in a kernel of its own, for languages that have no other
// interpreter in the template.
func (sb *sandbox) executeCell(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	if err := checkCell(req.Language, req); err != nil {
		return sdk.ExecuteResult{}, err
	}
	c, err := sb.newContext(ctx, sdk.CreateContextRequest{Language: req.Language})
	if err != nil {
		return sdk.ExecuteResult{}, sdk.ExecutionError(err, false)
	}
	defer func() {
		ending, cancel := context.WithTimeout(sb.gone, stopTimeout)
		defer cancel()
		if err := c.Delete(ending); err != nil && ending.Err() == nil {
			sb.p.logger.Warn("a kernel may be left in a sandbox", "sandbox", sb.id, "error", err)
		}
	}()
	return c.execute(ctx, req, out)
}
