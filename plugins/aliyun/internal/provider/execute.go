package provider

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/helper"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/program"
)

// sandbox is a helper.Runner.
type sandbox struct {
	data dataPlane
	id   string
}

// Run runs a command that has little to say.
func (s sandbox) Run(ctx context.Context, command string, timeout time.Duration) (string, error) {
	r, err := s.data.RunCommand(ctx, s.id, command, "/", timeout)
	if err != nil {
		return "", err
	}
	if r.Result.ExitCode != 0 {
		return "", &agentrun.Failure{Status: 502, Code: r.Status, Message: fmt.Sprintf("a command ended with exit code %d: %.300s", r.Result.ExitCode, r.Result.Stderr)}
	}
	return r.Result.Stdout, nil
}

// Upload writes a file.
func (s sandbox) Upload(ctx context.Context, path string, content []byte) error {
	return s.data.Upload(ctx, s.id, path, content)
}

// Execute implements sdk.Provider. The service gives output only when a command has
// ended, so that the code runs beside the commands that watch it: see package helper.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	if !p.owns(req.InstanceID) {
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	one, ok := p.records.get(req.InstanceID)
	if !ok {
		one = record{ID: req.InstanceID}
	}
	if one.Workspace == "" { // of a process that ended before it knew
		var err error
		if one, err = p.setup(ctx, one); err != nil {
			return sdk.ExecuteResult{}, p.explain(ctx, err, sdk.CodeUnavailable, "set up the sandbox")
		}
	}
	env := maps.Clone(one.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	req.Env = env
	made, err := program.ForProcess(req, program.Options{Dir: one.Workspace})
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	limit := min(req.Timeout, time.Duration(p.settings.Timeout)*time.Second, maxTimeout)
	run := helper.Program{
		ID: newExecution(), Argv: made.Command("{}"), Source: made.Source, Suffix: made.Suffix,
		Dir: one.Workspace, Timeout: limit,
	}
	output, tail := made.Output(out), &tailed{}
	done, err := p.follow(ctx, sandbox{p.data, one.ID}, run, output, tail)
	if err != nil {
		p.stop(ctx, one.ID, run.ID)
		return sdk.ExecuteResult{}, p.explain(ctx, err, sdk.CodeUnavailable, "run code")
	}
	result, err := output.Finish(done.Exit)
	if err != nil {
		return result, err
	}
	result.Duration = time.Duration(done.Seconds * float64(time.Second))
	result.PeakMemoryBytes = done.Memory
	judge(&result, done, tail.text, limit < req.Timeout)
	if done.Error != "" {
		return result, sdk.FieldErrorf(sdk.CodeNotSupported, "language", "the sandbox cannot run this language: %.200s", done.Error)
	}
	return result, nil
}

// follow starts a program and passes on what it prints, until its end.
func (p *Provider) follow(ctx context.Context, box sandbox, run helper.Program, output *program.Output, tail *tailed) (helper.Done, error) {
	progress, err := helper.Start(ctx, box, run)
	if err != nil && !errors.Is(err, helper.ErrUnknown) && ctx.Err() == nil && repeatable(err) {
		// The code may run although the answer was lost: whether it does can be seen, and
		// it is not started twice.
		var f error
		progress, f = p.watch(ctx, box, run.ID, 0, 0)
		if !errors.Is(f, helper.ErrUnknown) {
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
		progress, err = p.watch(ctx, box, run.ID, stdout, stderr)
	}
	if err != nil {
		return helper.Done{}, err
	}
	return *progress.Done, nil
}

func (p *Provider) watch(ctx context.Context, box sandbox, id string, stdout, stderr int64) (helper.Progress, error) {
	return again(ctx, func(ctx context.Context) (helper.Progress, error) {
		progress, err := helper.Watch(ctx, box, id, stdout, stderr)
		return progress, err
	})
}

// stop ends code whose caller has gone or that cannot be followed any more.
func (p *Provider) stop(ctx context.Context, id, execution string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	err := helper.Cancel(ctx, sandbox{p.data, id}, execution)
	if err != nil && !errors.Is(err, helper.ErrUnknown) && !isMissing(err) {
		p.log.Warn("code may run until its time limit: it could not be stopped", "sandbox", id, "error", p.secrets.Error(err))
	}
}

// judge says what the exit code does not.
func judge(result *sdk.ExecuteResult, done helper.Done, stderr string, cut bool) {
	switch done.Reason {
	case helper.Timeout:
		result.Status = sdk.StatusTimeout
		if cut {
			result.Detail = "the time limit of this provider is shorter than the one asked for"
		}
	case helper.Cancelled:
		result.Status = sdk.StatusCancelled
	case helper.Output:
		result.Status, result.Truncated = sdk.StatusFailed, true
		result.Detail = "the code was stopped: it printed more than 64 MiB"
	case helper.Memory:
		if result.ExitCode != 0 {
			result.Status = sdk.StatusOutOfMemory
		}
	default:
		if result.Status == sdk.StatusFailed && saysOutOfMemory(stderr) {
			result.Status = sdk.StatusOutOfMemory
		}
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

func newExecution() string {
	random := make([]byte, 12)
	_, _ = rand.Read(random) // never fails, by its documentation
	return hex.EncodeToString(random)
}
