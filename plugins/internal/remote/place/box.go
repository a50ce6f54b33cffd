package place

import (
	"context"
	"errors"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// Box is one sandbox.
type Box struct {
	Runner
	// ID is that of the instance.
	ID string
	// Workspace is where code works: remote.Workspace, where code can make that.
	Workspace string
	// Env is the environment of the instance.
	Env map[string]string
}

// Service is what a provider knows of its service.
type Service interface {
	// Box finds the sandbox of an instance.
	Box(ctx context.Context, instanceID string) (Box, error)
	// Worth says whether a call that failed so is worth another try, and after what pause.
	Worth(err error) (after time.Duration, again bool)
	// Refused says that a call that failed so has certainly changed nothing.
	Refused(err error) bool
	// Explain makes an error of the broker of one of the service. What Known says yes to is
	// returned as it is.
	Explain(ctx context.Context, err error, doing string) error
}

// Known says whether a call that asked the sandbox came to an answer: what the sandbox says
// of a program is none that a repeated call would change.
func Known(err error) bool {
	_, refused := errors.AsType[*sdk.Error](err)
	return err == nil || refused || errors.Is(err, ErrUnknown) || errors.Is(err, ErrEnded) || errors.Is(err, ErrRefused)
}

// Ask repeats a call to a sandbox until it has an answer.
func Ask[T any](ctx context.Context, s Service, call func(context.Context) (T, error)) (T, error) {
	var answered error
	value, err := remote.Again(ctx, retry.Policy{}, s.Worth, func(ctx context.Context) (T, error) {
		value, err := call(ctx)
		if answered = err; Known(err) {
			return value, nil
		}
		return value, err
	})
	if err == nil {
		err = answered
	}
	return value, err
}

// Environment is that of the instance, and more.
func (b Box) Environment(more ...map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, b.Env)
	for _, m := range more {
		maps.Copy(all, m)
	}
	return all
}

// Real is where a path of the contract is in a sandbox whose code may not make the
// directory that the contract names.
func (b Box) Real(name string) string { return moved(name, remote.Workspace, b.Workspace) }

// Shown is the opposite.
func (b Box) Shown(name string) string { return moved(name, b.Workspace, remote.Workspace) }

func moved(name, from, to string) string {
	clean := path.Clean(name)
	if from == to || clean != from && !strings.HasPrefix(clean, from+"/") {
		return name
	}
	return to + clean[len(from):]
}

// Absolute is a path as the sandbox resolves it; empty for the workspace.
func (b Box) Absolute(name string) string {
	if path.IsAbs(name) {
		return b.Real(path.Clean(name))
	}
	return path.Join(b.Workspace, name)
}
