package broker

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audit/sink"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// auditTimeout bounds the end of the audit log, on a disk that does not answer.
const auditTimeout = 10 * time.Second

// openAudit opens the audit log and has it sent where the configuration says.
func (b *broker) openAudit(dir string, s settings) (err error) {
	logger := b.logger.Named("audit")
	if b.audit, err = audit.Open(audit.Options{Dir: dir, Detail: s.audit, Logger: logger, Allowed: b.held}); err != nil {
		return err
	}
	b.sinks = sink.NewSet(b.audit, logger)
	b.sinks.Apply(s.sinks)
	return nil
}

// closeAudit ends the audit log, after everything that is written to it.
func (b *broker) closeAudit() error {
	ctx, cancel := context.WithTimeout(context.Background(), auditTimeout)
	defer cancel()
	err := b.audit.Close(ctx)
	b.sinks.Close()
	return err
}

// Record implements reload.Broker. It is for reloads and for what administrators change.
// What was done and has no second line yet is in force all the same: the log owes it.
func (b *broker) Record(ctx context.Context, operation, change string, act func() error) error {
	from := origin.Of(ctx)
	if from.Cause == origin.Broker {
		from.Cause = origin.Reload
	}
	r, err := b.audit.Begin(ctx, audit.Effect{
		Operation: operation, Cause: string(from.Cause), RequestID: from.RequestID, Remote: from.Remote,
		FrontDoor: from.FrontDoor, Change: change,
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
