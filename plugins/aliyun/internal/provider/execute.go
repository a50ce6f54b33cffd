package provider

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/program"
)

// Execute implements sdk.Provider. The service gives output only when a command has
// ended, so that the code runs beside the commands that watch it: see package guest.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	box, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, sdk.ExecutionError(err, false)
	}
	if req.ContextID != "" {
		return p.executeInContext(ctx, box, req, out)
	}
	req.Env = box.env(req.Env)
	made, err := program.ForProcess(req, program.Options{Dir: box.Workspace})
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	limit := p.limit(req)
	run := place.Program{
		ID: remote.NewName(), Argv: made.Command("{}"), Source: made.Source, Suffix: made.Suffix,
		Dir: box.Workspace, Timeout: limit, Grace: sdk.InterruptGrace, Artifacts: artifacts.Wanted(req.Artifacts),
	}
	running, end := p.Begin(req)
	defer end()
	running.Reached(func(ctx context.Context) error { return p.interrupt(ctx, box, run.ID) })
	output, tail := made.Output(out), &tailed{}
	done, begun, err := p.follow(ctx, box, run, output, tail)
	if err != nil {
		p.stop(ctx, box, run.ID)
		return sdk.ExecuteResult{}, sdk.ExecutionError(p.explain(ctx, err, sdk.CodeUnavailable, "run code"), begun)
	}
	result, err := output.Finish(done.Exit)
	if err != nil {
		return result, err
	}
	result.Duration = time.Duration(done.Seconds * float64(time.Second))
	result.PeakMemoryBytes = done.Peak
	judge(&result, done, tail.text, limit < req.Timeout)
	if done.Error != "" {
		return result, sdk.FieldErrorf(sdk.CodeNotSupported, "language", "the sandbox cannot run this language: %.200s", done.Error)
	}
	if done.Reason != "" {
		return result, nil
	}
	return result, sdk.ExecutionError(p.finder(box).Send(ctx, done.Files, req.Artifacts, out), true)
}

// limit is what the provider gives an execution.
func (p *Provider) limit(req sdk.ExecuteRequest) time.Duration {
	return min(req.Timeout, time.Duration(p.settings.Timeout)*time.Second, maxTimeout)
}

// follow starts a program and passes on what it prints, until its end. begun says that
// it may run, or has run.
func (p *Provider) follow(ctx context.Context, box sandbox, run place.Program, output *program.Output, tail *tailed) (_ supervise.Done, begun bool, err error) {
	progress, err := place.Start(ctx, box, run)
	begun = !denied(err)
	if err != nil && !known(err) && ctx.Err() == nil && repeatable(err) {
		// The code may run although the answer was lost: whether it does can be seen, and
		// it is not started twice.
		var f error
		progress, f = watch(ctx, box, run.ID, 0, 0)
		if !errors.Is(f, place.ErrUnknown) {
			err = f
		}
	}
	var stdout, stderr int64
	for err == nil {
		if len(progress.Stdout) > 0 {
			err = output.Stdout(progress.Stdout)
		}
		if err == nil && len(progress.Stderr) > 0 {
			tail.add(progress.Stderr)
			err = output.Stderr(progress.Stderr)
		}
		if err != nil || progress.Done != nil {
			break
		}
		stdout += int64(len(progress.Stdout))
		stderr += int64(len(progress.Stderr))
		progress, err = watch(ctx, box, run.ID, stdout, stderr)
	}
	if err != nil {
		return supervise.Done{}, begun, err
	}
	return *progress.Done, true, nil
}

func watch(ctx context.Context, box sandbox, id string, stdout, stderr int64) (place.Progress, error) {
	return ask(ctx, func(ctx context.Context) (place.Progress, error) { return place.Watch(ctx, box, id, stdout, stderr) })
}

// stop ends code whose caller has gone or that cannot be followed any more.
func (p *Provider) stop(ctx context.Context, box sandbox, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	err := place.Cancel(ctx, box, name)
	if err != nil && !known(err) && !isMissing(err) {
		p.log.Warn("code may run until its time limit: it could not be stopped", "sandbox", box.ID, "error", p.secrets.Error(err))
	}
}

// judge says what the exit code does not.
func judge(result *sdk.ExecuteResult, done supervise.Done, stderr string, cut bool) {
	done.Settle(result)
	switch {
	case done.Reason == supervise.Timeout && cut:
		result.Detail = cutShorter
	case done.Reason == supervise.Output:
		result.Status, result.ExitCode, result.Truncated = sdk.StatusFailed, max(result.ExitCode, 1), true
		result.Detail = "the code was stopped: it printed more than 64 MiB"
	case done.Reason == "" && result.Status == sdk.StatusFailed && saysOutOfMemory(stderr):
		result.Status = sdk.StatusOutOfMemory
	}
}

// saysOutOfMemory knows the last words of the interpreters.
func saysOutOfMemory(stderr string) bool {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	last := lines[len(lines)-1]
	return last == "MemoryError" || strings.HasPrefix(last, "MemoryError: ") || strings.Contains(stderr, "JavaScript heap out of memory")
}

// tailed keeps the end of a stream.
type tailed struct{ text string }

const tailSize = 4 << 10

func (t *tailed) add(p []byte) {
	t.text += string(p[max(0, len(p)-tailSize):])
	t.text = t.text[max(0, len(t.text)-tailSize):]
}

// interrupt does to a program what Ctrl-C does.
func (p *Provider) interrupt(ctx context.Context, box sandbox, program string) error {
	_, err := ask(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, place.Interrupt(ctx, box, program) })
	if errors.Is(err, place.ErrUnknown) || errors.Is(err, place.ErrEnded) {
		return sdk.Errorf(sdk.CodeNotFound, "no such execution is running")
	}
	return p.explain(ctx, err, sdk.CodeUnavailable, "interrupt code")
}

// finder finds what an execution has made.
func (p *Provider) finder(box sandbox) artifacts.Finder {
	return artifacts.Finder{Store: store{p}, Instance: box.ID, Most: maxListed}
}
