package broker

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audit/sink"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/disk"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// auditTimeout bounds the end of the audit log, on a disk that does not answer.
const auditTimeout = 10 * time.Second

func auditDetail(cfg *config.Config) audit.Detail {
	c := cfg.Audit
	return audit.Detail{IncludeCode: c.IncludeCode, MaxBytes: c.MaxMB * 1e6, KeepDays: int(c.KeepDays), Patience: cfg.Limits.DiskTimeout}
}

// openAudit opens the audit log and has it sent where the configuration says.
func (b *broker) openAudit(cfg *config.Config) (err error) {
	logger := b.logger.Named("audit")
	if b.audit, err = audit.Open(audit.Options{Dir: cfg.Audit.Dir, Detail: auditDetail(cfg), Logger: logger}); err != nil {
		return err
	}
	b.sinks = sink.NewSet(b.audit, logger)
	b.sinks.Apply(cfg.Audit)
	return nil
}

// setAudit changes what may change while the log is written.
func (b *broker) setAudit(cfg *config.Config) {
	b.audit.Change(auditDetail(cfg))
	b.sinks.Apply(cfg.Audit)
}

// closeAudit ends the audit log, after everything that is written to it.
func (b *broker) closeAudit() error {
	ctx, cancel := context.WithTimeout(context.Background(), auditTimeout)
	defer cancel()
	err := b.audit.Close(ctx)
	b.sinks.Close()
	return err
}

// recorded changes the broker itself, with a line in the audit log before and after.
// With an error it was not done. What was done and has no second line yet is in
// force all the same: the log owes it. It is for reloads and for what
// administrators change; change names settings and never values.
func (b *broker) recorded(ctx context.Context, operation, change string, act func() error) error {
	from := origin.Of(ctx)
	if from.Cause == origin.Broker {
		from.Cause = origin.Reload
	}
	r, err := b.audit.Begin(ctx, audit.Effect{
		Operation: operation, Cause: string(from.Cause), RequestID: from.RequestID, Remote: from.Remote, Change: change,
	})
	if err != nil {
		return err
	}
	outcome, err := audit.Outcome{Status: string(sdk.StatusSucceeded)}, act()
	if err != nil {
		outcome.Status, outcome.Error = audit.StatusError, sdk.CodeOf(err)
	}
	if unrecorded := r.End(outcome); unrecorded != nil {
		b.logger.Error("a change of the broker", "change", change, "error", unrecorded)
	}
	return err
}

// witnessed is a provider with its effects in the audit log.
func witnessed(w *audited.Witness, p sdk.Provider, err error) (sdk.Provider, error) {
	if err != nil {
		return nil, err
	}
	return w.Provider(p)
}

// reconcile lets the instances agree with a provider that has started.
func (b *broker) reconcile(ctx context.Context, r *revision, p sdk.Provider) error {
	p, err := r.witness.Provider(p)
	if err != nil {
		return err
	}
	return b.instances.Reconcile(origin.With(ctx, origin.Origin{Cause: origin.Reconcile}), instance.Provider(r), p)
}

// disks are the waits for the broker's own disk, by what is written.
func (b *broker) disks() map[string]disk.State {
	return map[string]disk.State{"audit": b.audit.Disk().State(), "state": b.store.Disk().State()}
}

// auditState is what the metrics say of the audit log.
func (b *broker) auditState() metrics.Audit {
	s := b.audit.State()
	return metrics.Audit{Writable: s.Writable, Lines: s.Lines, Refused: s.Refused, Late: s.Late, Behind: b.sinks.Behind()}
}
