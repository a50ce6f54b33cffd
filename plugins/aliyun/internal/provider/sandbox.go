package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// sandbox is one of ours.
type sandbox struct {
	place.Box
	contexts []savedContext
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
	return sandbox{place.Box{Runner: runner{p.data, one.ID}, ID: one.ID, Workspace: one.Workspace, Env: one.Env}, one.Contexts}, nil
}

// runner is a place.Runner.
type runner struct {
	data dataPlane
	id   string
}

// Run runs a command that has little to say.
func (r runner) Run(ctx context.Context, command string, timeout time.Duration) (string, error) {
	got, err := r.data.RunCommand(ctx, r.id, command, "/", timeout)
	if err != nil {
		return "", err
	}
	if got.Result.ExitCode != 0 {
		return "", &agentrun.Failure{Status: 502, Code: got.Status, Message: fmt.Sprintf("a command ended with exit code %d: %.300s", got.Result.ExitCode, got.Result.Stderr)}
	}
	return got.Result.Stdout, nil
}

// Upload writes a file.
func (r runner) Upload(ctx context.Context, path string, content []byte) error {
	return r.data.Upload(ctx, r.id, path, content)
}

// service is a place.Service.
type service struct{ p *Provider }

// Box implements place.Service.
func (s service) Box(ctx context.Context, instanceID string) (place.Box, error) {
	box, err := s.p.lookup(ctx, instanceID)
	return box.Box, err
}

// Worth implements place.Service.
func (service) Worth(err error) (time.Duration, bool) { return worth(err) }

// Refused implements place.Service.
func (service) Refused(err error) bool { return denied(err) }

// Explain implements place.Service.
func (s service) Explain(ctx context.Context, err error, doing string) error {
	return s.p.explain(ctx, err, sdk.CodeUnavailable, doing)
}
