package admin

import (
	"context"
	"errors"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxTrials is how many providers are tried at once.
const maxTrials = 2

// Configurator changes the configuration of a broker that runs, by changing its
// files, and tells what became of it. Its methods may be called concurrently.
type Configurator struct {
	daemon Daemon
	// changing has room for the one change that is in progress.
	changing chan struct{}
	trials   chan struct{}
}

// NewConfigurator returns a Configurator that needs no end.
func NewConfigurator(daemon Daemon) *Configurator {
	return &Configurator{daemon: daemon, changing: make(chan struct{}, 1), trials: make(chan struct{}, maxTrials)}
}

// Edit is a change of the configuration.
type Edit struct {
	// Operation says in a few words what is changed, such as `provider "e2b"`.
	Operation string
	// IfMatch are the revisions of the files of which one must be theirs; none for
	// any.
	IfMatch []string
	// Make changes the text of the files.
	Make func(d *edit.Document) error
	// Before is called with what comes out if there are no mistakes in it, before
	// anything is done. It may be nil.
	Before func(candidate *edit.Document) error
}

// Outcome of a change that is in force.
type Outcome struct {
	Reload Reload
	// Trial is set if the provider was tried before.
	Trial *Trial
}

// Change is the one way by which administrators change the configuration. The files
// are read, changed in memory and checked; the providers that are to run after it are
// started and must be well; then the files are written, and then all of it is in
// force. Whatever goes wrong, files and broker are as before.
//
// Errors are SB014 when the files are not of a revision in IfMatch, were changed
// meanwhile, or compute what is to be set; SB012 when they cannot be written;
// FieldErrors, config.Diagnostics for mistakes in what would come out; and what
// Make and Before return.
func (c *Configurator) Change(ctx context.Context, e Edit) (Outcome, error) {
	select {
	case c.changing <- struct{}{}:
		defer func() { <-c.changing }()
	case <-ctx.Done():
		return Outcome{}, sdk.Errorf(sdk.CodeUnavailable, "another change of the configuration is in progress: %w", ctx.Err())
	}
	d, err := c.open()
	if err != nil {
		return Outcome{}, err
	}
	if len(e.IfMatch) > 0 && !slices.Contains(e.IfMatch, d.Revision()) {
		return Outcome{}, sdk.Errorf(sdk.CodeConflict, "the configuration is another one by now; look at it as it is and try again")
	}
	// Before long work is done in vain.
	if err := d.CheckWritable(); err != nil {
		return Outcome{}, err
	}
	if err := e.Make(d); err != nil {
		return Outcome{}, err
	}
	cfg, diags := d.Check()
	if diags.HasErrors() {
		return Outcome{}, diags
	}
	if e.Before != nil {
		if err := e.Before(d); err != nil {
			return Outcome{}, err
		}
	}
	reload, err := c.daemon.Apply(ctx, Reload{Trigger: TriggerAPI, Operation: e.Operation, Diagnostics: diags}, cfg, d.Save)
	return Outcome{Reload: reload}, err
}

// open reads the files for a change.
func (c *Configurator) open() (*edit.Document, error) {
	file := c.daemon.File()
	if file == "" {
		return nil, sdk.Errorf(sdk.CodeNotAllowed, "this broker's configuration cannot change while it runs")
	}
	return edit.Open(file)
}

// Reload reads the files again and brings in force what they say, or with dry only
// says what that would do. The error is config.Diagnostics for mistakes in them.
func (c *Configurator) Reload(ctx context.Context, dry bool) (Reload, error) {
	if c.daemon.File() == "" {
		return Reload{}, sdk.Errorf(sdk.CodeNotAllowed, "this broker's configuration cannot change while it runs")
	}
	if dry {
		return c.daemon.DryRun(ctx)
	}
	return c.daemon.Reread(ctx)
}

// Generations are the last attempts to change the configuration, the newest first.
func (c *Configurator) Generations() []Reload { return c.daemon.Reloads() }

// InForce is the generation that requests go by.
func (c *Configurator) InForce() Generation { return c.daemon.InForce() }

// Status of the broker.
func (c *Configurator) Status() Status { return c.daemon.Status() }

// FieldErrors are settings that a change cannot give the values that it has for
// them.
type FieldErrors []sdk.FieldError

// Error names the settings and says what is wrong with them.
func (e FieldErrors) Error() string {
	errs := make([]error, len(e))
	for i, problem := range e {
		errs[i] = problem
	}
	return errors.Join(errs...).Error()
}
