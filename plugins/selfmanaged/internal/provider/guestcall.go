package provider

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/guestclient"
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
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	done, err := i.use()
	if err != nil {
		return err
	}
	defer done()
	bounded, cancel := context.WithTimeoutCause(ctx, bound, errNoAnswer)
	defer cancel()
	return p.guestError(ctx, bounded, i, call(bounded, i, i.sandbox.guest.Instance()))
}

// waitForGuest makes a call of an instance's guest that takes as long as the caller
// and the programs like. The instance may be paused meanwhile; the call stands
// still then.
func (p *Provider) waitForGuest(ctx context.Context, instanceID string, call func(guest *wire.Client) error) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	done, err := i.use()
	if err != nil {
		return err
	}
	done()
	return p.guestError(ctx, ctx, i, call(i.sandbox.guest.Instance()))
}

// guestError puts the failure of a call of an instance's guest into words. caller
// is the context of whoever asked, and call that of the call.
func (p *Provider) guestError(caller, call context.Context, i *instance, err error) error {
	switch {
	case err == nil, caller.Err() != nil:
		return err
	case errors.Is(context.Cause(call), errNoAnswer):
		return sdk.Errorf(sdk.CodeUnavailable, "the sandbox does not answer")
	case errors.Is(err, context.Canceled):
		// Nobody gave up, so the connection was closed on purpose.
		return sdk.Errorf(sdk.CodeNotFound, "the instance was destroyed")
	case errors.Is(err, sdk.ErrPluginGone):
		p.lose(i)
		return sdk.Errorf(sdk.CodeUnavailable, "%w", guestclient.ErrGone)
	default:
		return err
	}
}
