package provider

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Pauser = (*Provider)(nil)

// Pause implements sdk.Pauser. The service keeps a paused sandbox for 30 days.
func (p *Provider) Pause(ctx context.Context, instanceID string) error {
	// Before it is, so that nobody keeps it from being.
	if err := p.records.Change(instanceID, func(one record) record { one.Paused = true; return one }); err != nil {
		return err
	}
	err := p.bring(ctx, instanceID, agentrun.StatusPaused, p.control.PauseSandbox)
	if err != nil {
		return errors.Join(err, p.goesOn(instanceID))
	}
	return nil
}

// goesOn takes down that a sandbox is not paused.
func (p *Provider) goesOn(id string) error {
	return p.records.Change(id, func(one record) record { one.Paused = false; return one })
}

// Resume implements sdk.Pauser.
func (p *Provider) Resume(ctx context.Context, instanceID string) error {
	if err := p.bring(ctx, instanceID, agentrun.StatusReady, p.control.ResumeSandbox); err != nil {
		return err
	}
	return p.goesOn(instanceID)
}

// bring changes the state of a sandbox, and waits until it has it.
func (p *Provider) bring(ctx context.Context, id, want string, change func(context.Context, string) error) error {
	if !p.owns(id) {
		return errNoInstance
	}
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	asked := false
	for step := readyStep; ; step = min(2*step, maxStep) {
		s, err := again(ctx, func(ctx context.Context) (agentrun.Sandbox, error) { return p.data.GetSandbox(ctx, id) })
		switch {
		case err != nil:
			return p.explain(ctx, err, sdk.CodeUnavailable, "look at the sandbox")
		case s.Status == want && want == agentrun.StatusReady && asked:
			return p.answers(ctx, id, step)
		case s.Status == want:
			return nil
		case s.Status == agentrun.StatusTerminated || agentrun.Failed(s.Status):
			return errNoInstance
		case !asked:
			_, err := again(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, change(ctx, id) })
			if err != nil && !exists(err) { // a conflict: it is on its way already
				return p.explain(ctx, err, sdk.CodeUnavailable, "pause or resume the sandbox")
			}
			asked = true
			continue
		}
		if err := remote.Pause(ctx, step); err != nil {
			return sdk.Errorf(sdk.CodeUnavailable, "the sandbox is %s and not %s: %w", s.Status, want, err)
		}
	}
}

// answers waits until a sandbox runs code again.
func (p *Provider) answers(ctx context.Context, id string, step time.Duration) error {
	for {
		ready, err := p.data.Ready(ctx, id)
		if ready {
			return nil
		}
		if isMissing(err) {
			return errNoInstance
		}
		if ended := remote.Pause(ctx, step); ended != nil {
			return sdk.Errorf(sdk.CodeUnavailable, "the sandbox does not answer: %w", ended)
		}
	}
}
