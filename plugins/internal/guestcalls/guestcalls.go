// Package guestcalls is what the guest of a sandbox serves, as the interfaces of the SDK:
// commands, files, contexts and ports. A provider whose sandboxes have a guest embeds Calls,
// and says which instances there are (Instances), and what it means that a guest does not
// answer any more (Instance.Lost).
//
// Executions, packages and pauses are for the provider: what their failure means depends on
// how its sandboxes come and go.
package guestcalls

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
)

// Instances finds the instances of a provider.
type Instances interface {
	// Reach finds an instance for a call that its guest answers, and keeps it from being
	// paused until release is called. With an error there is nothing to release.
	Reach(ctx context.Context, instanceID string) (i Instance, release func(), err error)
}

// Instance is one that has a guest.
type Instance interface {
	// Guest is the way to it.
	Guest() *guestclient.Client
	// Environment is the instance's, and over it the given variables.
	Environment(given map[string]string) map[string]string
	// Lost says what it means for a call that the connection to the guest has ended under
	// it.
	Lost(ctx context.Context) error
}

// Calls are those that guests answer.
type Calls struct{ instances Instances }

// New makes the calls of a provider's instances.
func New(instances Instances) *Calls { return &Calls{instances} }

// AnswerBound is what a guest may take for a call that has nothing to wait for.
const AnswerBound = 10 * time.Second

// ErrNoAnswer is the cause of the end of a call that took longer than it may.
var ErrNoAnswer = errors.New("the guest does not answer")

// askWithin makes a call of an instance's guest that has nothing to wait for, and has
// time until the bound. The instance is not paused meanwhile.
func (c *Calls) askWithin(ctx context.Context, bound time.Duration, instanceID string, call func(ctx context.Context, i Instance, guest *wire.Client) error) error {
	i, release, err := c.instances.Reach(ctx, instanceID)
	if err != nil {
		return err
	}
	defer release()
	bounded, cancel := context.WithTimeoutCause(ctx, bound, ErrNoAnswer)
	defer cancel()
	return Explain(ctx, bounded, i, call(bounded, i, i.Guest().Instance()))
}

// ask makes a call of an instance's guest that takes as long as the caller likes.
// The instance is not paused meanwhile.
func (c *Calls) ask(ctx context.Context, instanceID string, call func(guest *wire.Client) error) error {
	i, release, err := c.instances.Reach(ctx, instanceID)
	if err != nil {
		return err
	}
	defer release()
	return Explain(ctx, ctx, i, call(i.Guest().Instance()))
}

// waitFor makes a call of an instance's guest that takes as long as the caller
// and the programs like. The instance may be paused meanwhile; the call stands
// still then.
func (c *Calls) waitFor(ctx context.Context, instanceID string, call func(guest *wire.Client) error) error {
	i, release, err := c.instances.Reach(ctx, instanceID)
	if err != nil {
		return err
	}
	release()
	return Explain(ctx, ctx, i, call(i.Guest().Instance()))
}

// read opens something that is read after its call has returned.
func (c *Calls) read(ctx context.Context, instanceID string, open func(guest *wire.Client) (io.ReadCloser, error)) (io.ReadCloser, error) {
	i, release, err := c.instances.Reach(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	content, err := open(i.Guest().Instance())
	if err != nil {
		release()
		return nil, Explain(ctx, ctx, i, err)
	}
	return &reading{content, sync.OnceFunc(release), func(err error) error { return Explain(ctx, ctx, i, err) }}, nil
}

// Explain puts the failure of a call of an instance's guest into words. caller is the
// context of whoever asked, and call that of the call.
func Explain(caller, call context.Context, i Instance, err error) error {
	switch {
	case err == nil, caller.Err() != nil:
		return err
	case errors.Is(context.Cause(call), ErrNoAnswer):
		return sdk.Errorf(sdk.CodeUnavailable, "the sandbox does not answer")
	case errors.Is(err, wire.ErrPluginGone), errors.Is(err, context.Canceled):
		// The guest itself never cancels: its connection has ended.
		return i.Lost(caller)
	default:
		return err
	}
}

// reading is content from a guest.
type reading struct {
	io.ReadCloser
	release func()
	explain func(error) error
}

var _ filechunk.Source = (*reading)(nil)

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	return n, r.ended(err)
}

// NextChunk implements filechunk.Source: what comes from the guest is passed on.
func (r *reading) NextChunk() (mem.BufferSlice, error) {
	chunk, err := filechunk.Next(r.ReadCloser, false)
	return chunk, r.ended(err)
}

func (r *reading) ended(err error) error {
	if err != nil && err != io.EOF { //nolint:errorlint // io.Reader has it bare
		err = r.explain(err)
	}
	return err
}

func (r *reading) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}
