package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// administration is the broker as administrators change it.
type administration struct{ *broker }

var _ admin.Daemon = administration{}

// errStopping is the answer to who asks when it is too late, errTooLong to whose
// request ended before what it asked for.
var (
	errStopping = sdk.Errorf(sdk.CodeUnavailable, "the broker is stopping")
	errTooLong  = sdk.Errorf(sdk.CodeUnavailable, "it took longer than a request may, and was given up: nothing has changed")
)

// ended words the end of a context that is not the client's doing.
func (a administration) ended(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errTooLong
	case errors.Is(err, context.Canceled) && (a.life.Err() != nil || a.instances.Draining()):
		return errStopping
	default:
		return err
	}
}

// File implements admin.Daemon.
func (a administration) File() string {
	files := a.catalog.InForce().Config.Files()
	if a.options.Load == nil || len(files) == 0 {
		return ""
	}
	return files[0].Name
}

// InForce implements admin.Daemon.
func (a administration) InForce() admin.Generation {
	g := a.catalog.InForce()
	shown := admin.Generation{Number: g.Number, Accepted: g.Accepted, Config: g.Config}
	for _, r := range g.Current {
		shown.Providers = append(shown.Providers, admin.Configured{Label: r.Label(), Schema: r.Description().Schema, Settings: r.Settings()})
	}
	return shown
}

// Apply implements admin.Daemon.
func (a administration) Apply(ctx context.Context, begun admin.Reload, draft admin.Draft) (admin.Reload, error) {
	return aside(ctx, a, "change the configuration", func(ctx context.Context) (admin.Reload, error) {
		return a.reloader.Apply(ctx, begun, draft)
	})
}

// Reread implements admin.Daemon.
func (a administration) Reread(ctx context.Context) (admin.Reload, error) {
	return aside(ctx, a, "read the configuration", func(ctx context.Context) (admin.Reload, error) {
		return a.reloader.Read(ctx, admin.TriggerAPI)
	})
}

// DryRun implements admin.Daemon.
func (a administration) DryRun(ctx context.Context) (admin.Reload, error) {
	return aside(ctx, a, "try the configuration", a.reloader.DryRun)
}

// Preview implements admin.Daemon.
func (a administration) Preview(ctx context.Context, begun admin.Reload, cfg *config.Config) (admin.Reload, error) {
	return aside(ctx, a, "try a change of the configuration", func(ctx context.Context) (admin.Reload, error) {
		return a.reloader.Preview(ctx, begun, cfg)
	})
}

// Texts implements admin.Daemon.
func (a administration) Texts(generation int) []admin.FileText { return a.reloader.Texts(generation) }

// Describe implements admin.Daemon.
func (a administration) Describe(ctx context.Context, cfg *config.Config, block *config.Provider) (sdk.Description, error) {
	return aside(ctx, a, "describe a plugin", func(ctx context.Context) (sdk.Description, error) {
		return a.starter.Describe(ctx, cfg, block)
	})
}

// FindProviders implements admin.Finder.
func (a administration) FindProviders(ctx context.Context) ([]admin.Provider, error) {
	return aside(ctx, a, "look for plugins", func(ctx context.Context) ([]admin.Provider, error) {
		return a.starter.Find(ctx, a.catalog.InForce().Config)
	})
}

// Try implements admin.Daemon.
func (a administration) Try(ctx context.Context, cfg *config.Config, block *config.Provider) (trial admin.Trial, err error) {
	err = a.Record(ctx, audited.OpTry, "provider "+block.Label, func() (err error) {
		trial, err = aside(ctx, a, "try a provider", func(ctx context.Context) (admin.Trial, error) { return a.starter.Try(ctx, cfg, block) })
		return err
	})
	return trial, a.ended(err)
}

// aside does something that starts processes, for a request. A stop waits for it,
// and ends it.
func aside[T any](ctx context.Context, a administration, name string, do func(context.Context) (T, error)) (result T, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.life, cancel)()
	if a.life.Err() != nil {
		return result, errStopping
	}
	err = fmt.Errorf("%s: it ended in a panic", name)
	done := make(chan struct{})
	a.tasks.Go(name, func() {
		defer close(done)
		result, err = do(ctx)
	})
	<-done
	return result, a.ended(err)
}

// Reloads implements admin.Daemon.
func (a administration) Reloads() []admin.Reload { return a.reloader.Reloads() }

// Status implements admin.Daemon.
func (a administration) Status() admin.Status {
	return admin.Status{Version: a.options.Version, Started: a.started, Instances: a.instances.CountByState()}
}
