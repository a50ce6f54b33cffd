package admin

import (
	"context"
	"errors"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxLooks is how often files are read again that change while they are read.
const maxLooks = 5

// maxTrials is how many providers are tried at once.
const maxTrials = 2

// Configurator changes the configuration of a broker that runs, by changing its
// files, and tells what became of it. Its methods may be called concurrently.
type Configurator struct {
	daemon Daemon
	trials chan struct{}
}

// NewConfigurator returns a Configurator that needs no end.
func NewConfigurator(daemon Daemon) *Configurator {
	return &Configurator{daemon: daemon, trials: make(chan struct{}, maxTrials)}
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
	// Asks says that Make starts a plugin to ask what its settings are.
	Asks bool
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
// force. Whatever goes wrong, files and broker are as before. Where another
// administrator has changed the files meanwhile, the same change is made to what they
// are then, unless IfMatch forbids it.
//
// Errors are SB014 when the files are not of a revision in IfMatch, were changed by
// hand meanwhile, or compute what is to be set; SB012 when they cannot be
// written; FieldErrors, config.Diagnostics for mistakes in what would come out; and
// what Make and Before return.
func (c *Configurator) Change(ctx context.Context, e Edit) (Outcome, error) {
	d := &draft{configurator: c, edit: e}
	if err := d.Renew(); err != nil {
		return Outcome{}, err
	}
	if e.Before != nil {
		if err := e.Before(d.document); err != nil {
			return Outcome{}, err
		}
	}
	reload, err := c.daemon.Apply(ctx, Reload{Trigger: TriggerAPI, Operation: e.Operation, Diagnostics: d.warnings}, d)
	return Outcome{Reload: reload}, err
}

// draft is an Edit of the files as they were at one moment.
type draft struct {
	configurator *Configurator
	edit         Edit
	document     *edit.Document
	config       *config.Config
	warnings     config.Diagnostics
}

var _ Draft = (*draft)(nil)

// Config implements Draft.
func (d *draft) Config() *config.Config { return d.config }

// Save implements Draft.
func (d *draft) Save() error { return d.document.Save() }

// Quick implements Draft.
func (d *draft) Quick() bool { return !d.edit.Asks }

// Revisions implements Draft.
func (d *draft) Revisions() (from, now string) {
	if files, err := d.configurator.open(); err == nil {
		now = files.Revision()
	}
	return d.document.Revision(), now
}

// Renew implements Draft.
func (d *draft) Renew() error {
	document, err := d.configurator.open()
	if err != nil {
		return err
	}
	if len(d.edit.IfMatch) > 0 && !slices.Contains(d.edit.IfMatch, document.Revision()) {
		return sdk.Errorf(sdk.CodeConflict, "the configuration is another one by now; look at it as it is and try again")
	}
	// Before long work is done in vain.
	if err := document.CheckWritable(); err != nil {
		return err
	}
	if err := d.edit.Make(document); err != nil {
		return err
	}
	d.document = document
	cfg, diags := document.Check()
	if diags.HasErrors() {
		return diags
	}
	d.config, d.warnings = cfg, diags
	return nil
}

// open reads the files for a change.
func (c *Configurator) open() (*edit.Document, error) {
	file := c.daemon.File()
	if file == "" {
		return nil, sdk.Errorf(sdk.CodeNotAllowed, "this broker's configuration cannot change while it runs")
	}
	d, err := edit.Open(file)
	// A file that is replaced at this very moment is read once more.
	for range maxLooks {
		if sdk.CodeOf(err) != sdk.CodeConflict {
			break
		}
		d, err = edit.Open(file)
	}
	return d, err
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
