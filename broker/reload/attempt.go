package reload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Metrics are what the metrics say of the reloads.
func (r *Reloader) Metrics() metrics.Configuration {
	totals, g := r.history.Totals(), r.inForce()
	c := metrics.Configuration{
		Generation: g.Number,
		Applied:    totals.Applied, Refused: totals.Refused, LastAt: totals.LastAt, LastOK: totals.LastOK,
	}
	if g.Config != nil && g.Config.TLS != nil {
		c.CertificateEnds = g.Config.TLS.Certificate.Leaf.NotAfter
	}
	return c
}

// Reloads are those that are remembered, the newest first.
func (r *Reloader) Reloads() []admin.Reload {
	list := r.history.Reloads()
	for i := range list {
		list[i].Restorable = list[i].Applied && r.texts.Of(list[i].Generation) != nil
	}
	return list
}

// Texts are the files of a generation, as admin.Daemon says.
func (r *Reloader) Texts(generation int) []admin.FileText { return r.texts.Of(generation) }

// NoteStart remembers the first generation as one of them.
func (r *Reloader) NoteStart(at time.Time) {
	g := r.inForce()
	r.texts.Keep(g.Number, g.Config)
	r.history.Note(admin.Reload{At: at, Trigger: admin.TriggerStart, Generation: g.Number, Applied: true, Revision: g.Config.Revision})
}

// Apply brings a draft in force, as admin.Daemon says.
func (r *Reloader) Apply(ctx context.Context, begun admin.Reload, draft admin.Draft) (admin.Reload, error) {
	reload, err := r.attempt(ctx, begun, &draftSource{Draft: draft, reloader: r})
	if unsaved, ok := errors.AsType[*saveError](err); ok {
		err = unsaved.err
	}
	return reload, err
}

// attempt tries to put a configuration in force and tells what became of it, in the
// Reload and, if it came to nothing, as an error. begun has what is known before.
func (r *Reloader) attempt(ctx context.Context, begun admin.Reload, from source) (admin.Reload, error) {
	began := time.Now()
	done, err := r.run(ctx, from)
	reload := begun
	reload.Change, reload.Applied, reload.Generation = done.change, done.applied, done.generation
	reload.Beside = done.beside
	if done.revision != "" {
		reload.Revision = done.revision
	}
	if done.beside && err == nil {
		reload.Diagnostics = reload.Diagnostics.With(config.Diagnostics{{
			Severity: config.SeverityWarning, Summary: "Not the providers", File: mainFile(done.cfg),
			Detail: "What touches no provider is in force. The files also change providers; these are being started, or were refused, and are as they were until they are well.",
		}})
	}
	if err != nil {
		reload.Diagnostics = reload.Diagnostics.With(asDiagnostics(done.cfg, err))
	}
	reload.At, reload.Took = time.Now(), time.Since(began)
	if ctx.Err() != nil && err != nil {
		return reload, ctx.Err() // the broker stops, or who asked is gone; nobody wants to know
	}
	if isUnasked(err) {
		if begun.Trigger != admin.TriggerAPI { // nobody else tries it again
			r.Logger.Named("config").Warn("the brokers that share the configuration cannot be asked now; it is tried again", "error", err)
			r.tryAgain()
		}
		return reload, err
	}
	if _, unsaved := errors.AsType[*saveError](err); unsaved || isRefusal(err) { // which says nothing about the configuration
		return reload, err
	}
	if reload.Applied && !reload.Beside { // else the files are not what is in force
		r.texts.Keep(reload.Generation, done.cfg)
	}
	r.remember(reload)
	if err != nil {
		err = reload.Diagnostics // a port that is taken, too, is the configuration's fault
	}
	return reload, err
}

// isRefusal reports whether an error is about the change, and not about what it would
// come to.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*sdk.Error](err)
	return ok && e.Code == sdk.CodeConflict
}

func (r *Reloader) remember(done admin.Reload) {
	r.history.Add(done)
	logger := r.Logger.Named("config")
	took := done.Took.Round(time.Millisecond)
	fields := []any{"generation", done.Generation, "trigger", string(done.Trigger)}
	if done.Operation != "" {
		fields = append(fields, "operation", done.Operation)
	}
	switch done.Result() {
	case "refused":
		logger.Error("the new configuration is refused; the one before stays in force", fields...)
	case "applied":
		logger.Info("a new configuration is in force", append(fields, "took", took, "change", done.Change.String())...)
	default:
		logger.Info("the configuration was read again and is the same", fields...)
	}
	for _, d := range done.Diagnostics {
		if d.Severity == config.SeverityError {
			logger.Error(d.Error())
		} else {
			logger.Warn(d.Error())
		}
	}
}

// asDiagnostics makes mistakes of any error, for those who show them.
func asDiagnostics(cfg *config.Config, err error) config.Diagnostics {
	if diags, ok := errors.AsType[config.Diagnostics](err); ok {
		return diags
	}
	d := config.Diagnostic{
		Severity: config.SeverityError, Summary: "The configuration cannot be put in force", Detail: fmt.Sprintf("%v.", err),
	}
	d.File = mainFile(cfg)
	return config.Diagnostics{d}
}

// mainFile is the file that a mistake without a place is about.
func mainFile(cfg *config.Config) string {
	if cfg == nil {
		return ""
	}
	if files := cfg.Files(); len(files) > 0 {
		return files[0].Name
	}
	return ""
}

func paths(cfg *config.Config) (paths []string) {
	for _, f := range cfg.Files() {
		paths = append(paths, f.Path)
	}
	return paths
}
