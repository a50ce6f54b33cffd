package broker

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

// configuration is what the metrics say of the reloads.
func (b *broker) configuration() metrics.Configuration {
	totals, g := b.history.Totals(), b.catalog.generation()
	c := metrics.Configuration{
		Generation: g.number,
		Applied:    totals.Applied, Refused: totals.Refused, LastAt: totals.LastAt, LastOK: totals.LastOK,
	}
	if g.cfg != nil && g.cfg.TLS != nil {
		c.CertificateEnds = g.cfg.TLS.Certificate.Leaf.NotAfter
	}
	return c
}

// attempt tries to put a configuration in force and tells what became of it, in the
// Reload and, if it came to nothing, as an error. begun has what is known before.
func (b *broker) attempt(ctx context.Context, begun admin.Reload, from source) (admin.Reload, error) {
	began := time.Now()
	done, err := b.reload(ctx, from)
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
	if _, unsaved := errors.AsType[*saveError](err); unsaved || isRefusal(err) { // which says nothing about the configuration
		return reload, err
	}
	b.remember(reload)
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

func (b *broker) remember(r admin.Reload) {
	b.history.Add(r)
	b.tell(r)
}

func (b *broker) tell(r admin.Reload) {
	logger := b.logger.Named("config")
	took := r.Took.Round(time.Millisecond)
	fields := []any{"generation", r.Generation, "trigger", string(r.Trigger)}
	if r.Operation != "" {
		fields = append(fields, "operation", r.Operation)
	}
	switch r.Result() {
	case "refused":
		logger.Error("the new configuration is refused; the one before stays in force", fields...)
	case "applied":
		logger.Info("a new configuration is in force", append(fields, "took", took, "change", r.Change.String())...)
	default:
		logger.Info("the configuration was read again and is the same", fields...)
	}
	for _, d := range r.Diagnostics {
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
