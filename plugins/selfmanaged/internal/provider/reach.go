package provider

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// reach finds an instance for a call that its guest answers, and keeps it from
// being paused until release is called. With an error there is nothing to release.
func (p *Provider) reach(instanceID string) (i *instance, release func(), err error) {
	if i, err = p.find(instanceID); err != nil {
		return nil, nil, err
	}
	if !i.pause.TryRLock() {
		return nil, nil, sdk.Errorf(sdk.CodeConflict, "the instance is being paused or resumed")
	}
	if i.paused {
		i.pause.RUnlock()
		return nil, nil, errPaused
	}
	return i, i.pause.RUnlock, nil
}

// ask passes a call on to the guest of an instance.
func (p *Provider) ask(ctx context.Context, instanceID string, call func(guest *wire.Client) error) error {
	i, release, err := p.reach(instanceID)
	if err != nil {
		return err
	}
	defer release()
	return p.explainCall(ctx, i, call(i.sandbox.guest.Instance()))
}

// explainCall puts the failure of a call that went to the guest into words for
// the broker. Where the sandbox has ended, the instance is taken back.
func (p *Provider) explainCall(ctx context.Context, i *instance, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	// The guest itself never cancels: that means that its connection was closed.
	if !errors.Is(err, sdk.ErrPluginGone) && !errors.Is(err, context.Canceled) {
		return err
	}
	if !p.lose(i) {
		return sdk.Errorf(sdk.CodeNotFound, "the instance was destroyed")
	}
	p.logger.Warn("sandbox ended unexpectedly", "instance", i.ID, "stderr", i.sandbox.Stderr())
	return sdk.Errorf(sdk.CodeUnavailable, "the sandbox ended during the call")
}
