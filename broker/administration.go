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
func (a administration) Apply(ctx context.Context, begun admin.Reload, draft admin.Draft) (reload admin.Reload, err error) {
	err = a.aside(ctx, "change the configuration", func(ctx context.Context) (err error) {
		reload, err = a.reloader.Apply(ctx, begun, draft)
		return err
	})
	return reload, a.ended(err)
}

// Reread implements admin.Daemon.
func (a administration) Reread(ctx context.Context) (reload admin.Reload, err error) {
	err = a.aside(ctx, "read the configuration", func(ctx context.Context) (err error) {
		reload, err = a.reloader.Read(ctx, admin.TriggerAPI)
		return err
	})
	return reload, a.ended(err)
}

// DryRun implements admin.Daemon.
func (a administration) DryRun(ctx context.Context) (reload admin.Reload, err error) {
	err = a.aside(ctx, "try the configuration", func(ctx context.Context) (err error) {
		reload, err = a.reloader.DryRun(ctx)
		return err
	})
	return reload, a.ended(err)
}

// Describe implements admin.Daemon.
func (a administration) Describe(ctx context.Context, cfg *config.Config, block *config.Provider) (description sdk.Description, err error) {
	err = a.aside(ctx, "describe a plugin", func(ctx context.Context) (err error) {
		description, err = a.starter.Describe(ctx, cfg, block)
		return err
	})
	return description, a.ended(err)
}

// FindProviders implements admin.Finder.
func (a administration) FindProviders(ctx context.Context) (list []admin.Provider, err error) {
	err = a.aside(ctx, "look for plugins", func(ctx context.Context) (err error) {
		list, err = a.starter.Find(ctx, a.catalog.InForce().Config)
		return err
	})
	return list, a.ended(err)
}

// Try implements admin.Daemon.
func (a administration) Try(ctx context.Context, cfg *config.Config, block *config.Provider) (trial admin.Trial, err error) {
	err = a.recorded(ctx, audited.OpTry, "provider "+block.Label, func() error {
		return a.aside(ctx, "try a provider", func(ctx context.Context) (err error) {
			trial, err = a.starter.Try(ctx, cfg, block)
			return err
		})
	})
	return trial, a.ended(err)
}

// aside does something that starts processes, for a request. A stop waits for it,
// and ends it.
func (a administration) aside(ctx context.Context, name string, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.life, cancel)()
	if a.life.Err() != nil {
		return errStopping
	}
	err := fmt.Errorf("%s: it ended in a panic", name)
	done := make(chan struct{})
	a.tasks.Go(name, func() {
		defer close(done)
		err = do(ctx)
	})
	<-done
	return err
}

// Reloads implements admin.Daemon.
func (a administration) Reloads() []admin.Reload { return a.reloader.Reloads() }

// Status implements admin.Daemon.
func (a administration) Status() admin.Status {
	return admin.Status{Version: a.options.Version, Started: a.started, Instances: a.instances.CountByState()}
}
