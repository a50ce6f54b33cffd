package audited

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// SetNetwork records which hosts an instance may reach from now on.
func (p *provider) SetNetwork(ctx context.Context, instanceID string, policy sdk.NetworkPolicy) error {
	e := p.recorder.effect(ctx, OpSetNetwork, instanceID)
	e.Hosts = hostsOf(&policy)
	return p.recorder.record(ctx, e, func(*audit.Outcome) error { return p.client.SetNetwork(ctx, instanceID, policy) })
}

// FollowNetwork writes what instances do with their networks into the log, one line for each
// connection, and hands it on. What the log cannot take at once is waited for: meanwhile the
// provider counts what it drops.
func (p *provider) FollowNetwork(ctx context.Context, report func(sdk.NetworkReport) error) error {
	return p.client.FollowNetwork(ctx, func(r sdk.NetworkReport) error {
		for _, c := range r.Connections {
			_ = p.recorder.reached(ctx, c) // it is owed, and is written when the log can be
		}
		if r.Lost > 0 {
			e := p.recorder.effect(ctx, OpReachLost, "")
			_ = p.recorder.log.Tell(e, audit.Outcome{Status: audit.StatusUnknown, Lost: r.Lost}, 0)
		}
		return report(r)
	})
}

// reached writes what became of a connection.
func (rec *Recorder) reached(ctx context.Context, c sdk.NetworkConnection) error {
	ctx = origin.With(ctx, origin.Origin{Cause: origin.Sandbox})
	e := rec.effect(ctx, OpReach, c.InstanceID)
	e.Host, e.Port, e.Protocol, e.Method = c.Host, c.Port, c.Protocol, c.Method
	o := audit.Outcome{
		Status: string(sdk.StatusSucceeded), Verdict: string(c.Verdict), Reason: c.Reason, Sent: &c.Sent, Received: &c.Received,
		Began: c.Began.UTC().Format(time.RFC3339Nano),
	}
	if c.Verdict == sdk.NetworkRefused {
		o.Status = audit.StatusError
	}
	return rec.log.Tell(e, o, c.Duration)
}
