package provider

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// answerBound is what the guest may take for a call that has nothing to wait for.
const answerBound = 10 * time.Second

// errNoAnswer ends a call that took longer.
var errNoAnswer = errors.New("the guest does not answer")

// askGuest makes a call of an instance's guest that has nothing to wait for. The
// instance is not paused meanwhile.
func (p *Provider) askGuest(ctx context.Context, instanceID string, call func(ctx context.Context, i *instance, guest *wire.Client) error) error {
	return p.askGuestWithin(ctx, answerBound, instanceID, call)
}

func (p *Provider) askGuestWithin(ctx context.Context, bound time.Duration, instanceID string, call func(ctx context.Context, i *instance, guest *wire.Client) error) error {
	i, release, err := p.reach(instanceID)
	if err != nil {
		return err
	}
	defer release()
	bounded, cancel := context.WithTimeoutCause(ctx, bound, errNoAnswer)
	defer cancel()
	return p.explainCall(ctx, bounded, i, call(bounded, i, i.sandbox.guest.Instance()))
}

// ask makes a call of an instance's guest that takes as long as the caller likes.
// The instance is not paused meanwhile.
func (p *Provider) ask(ctx context.Context, instanceID string, call func(guest *wire.Client) error) error {
	i, release, err := p.reach(instanceID)
	if err != nil {
		return err
	}
	defer release()
	return p.explainCall(ctx, ctx, i, call(i.sandbox.guest.Instance()))
}

// waitForGuest makes a call of an instance's guest that takes as long as the caller
// and the programs like. The instance may be paused meanwhile; the call stands
// still then.
func (p *Provider) waitForGuest(ctx context.Context, instanceID string, call func(guest *wire.Client) error) error {
	i, release, err := p.reach(instanceID)
	if err != nil {
		return err
	}
	release()
	return p.explainCall(ctx, ctx, i, call(i.sandbox.guest.Instance()))
}

// reach finds an instance for a call that its guest answers, and keeps it from
// being paused until release is called. With an error there is nothing to release.
func (p *Provider) reach(instanceID string) (i *instance, release func(), err error) {
	if i, err = p.find(instanceID); err != nil {
		return nil, nil, err
	}
	if release, err = i.use(); err != nil {
		return nil, nil, err
	}
	return i, release, nil
}

// explainCall puts the failure of a call of an instance's guest into words. caller
// is the context of whoever asked, and call that of the call.
func (p *Provider) explainCall(caller, call context.Context, i *instance, err error) error {
	switch {
	case err == nil, caller.Err() != nil:
		return err
	case errors.Is(context.Cause(call), errNoAnswer):
		return sdk.Errorf(sdk.CodeUnavailable, "the sandbox does not answer")
	case errors.Is(err, wire.ErrPluginGone), errors.Is(err, context.Canceled):
		// The guest itself never cancels: its connection was closed.
		return p.callLost(caller, i)
	default:
		return err
	}
}
