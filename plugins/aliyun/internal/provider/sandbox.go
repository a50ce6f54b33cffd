package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// sandbox is one of ours. It is a place.Runner.
type sandbox struct {
	record
	data dataPlane
}

var errNoInstance = sdk.Errorf(sdk.CodeNotFound, "no such instance")

// lookup finds a sandbox. Whether it lives shows when it is used.
func (p *Provider) lookup(ctx context.Context, id string) (sandbox, error) {
	if !p.owns(id) {
		return sandbox{}, errNoInstance
	}
	one, ok := p.records.Get(id)
	if !ok {
		one = record{ID: id}
	}
	if one.Workspace == "" { // of a process that ended before it knew
		var err error
		if one, err = p.setup(ctx, one); err != nil {
			return sandbox{}, p.explain(ctx, err, sdk.CodeUnavailable, "set up the sandbox")
		}
	}
	return sandbox{one, p.data}, nil
}

// Run runs a command that has little to say.
func (s sandbox) Run(ctx context.Context, command string, timeout time.Duration) (string, error) {
	r, err := s.data.RunCommand(ctx, s.ID, command, "/", timeout)
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
	return s.data.Upload(ctx, s.ID, path, content)
}

// env is the environment of the instance, and more.
func (s sandbox) env(more ...map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, s.Env)
	for _, m := range more {
		maps.Copy(all, m)
	}
	return all
}

// known says whether a call that asked the sandbox came to an answer: what the guest
// says of a program is none that a repeated call would change.
func known(err error) bool {
	_, refused := errors.AsType[*sdk.Error](err)
	return err == nil || refused || errors.Is(err, place.ErrUnknown) || errors.Is(err, place.ErrEnded) || errors.Is(err, place.ErrRefused)
}

// ask repeats a call to a sandbox until it has an answer.
func ask[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	var answered error
	value, err := again(ctx, func(ctx context.Context) (T, error) {
		value, err := call(ctx)
		if answered = err; known(err) {
			return value, nil
		}
		return value, err
	})
	if err == nil {
		err = answered
	}
	return value, err
}
