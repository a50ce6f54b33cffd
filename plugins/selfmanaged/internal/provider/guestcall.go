package provider

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
)

// answerBound is what the guest may take for a call that has nothing to wait for.
const answerBound = 10 * time.Second

// errNoAnswer ends a call that took longer.
var errNoAnswer = errors.New("the guest does not answer")

// askWithin makes a call of an instance's guest that has nothing to wait for, and has
// time until the bound. The instance is not paused meanwhile.
func (all *instances) askWithin(ctx context.Context, bound time.Duration, instanceID string, call func(ctx context.Context, i *instance, guest *wire.Client) error) error {
	i, release, err := all.reach(instanceID)
	if err != nil {
		return err
	}
	defer release()
	bounded, cancel := context.WithTimeoutCause(ctx, bound, errNoAnswer)
	defer cancel()
	return i.explainCall(ctx, bounded, call(bounded, i, i.sandbox.guest.Instance()))
}

// ask makes a call of an instance's guest that takes as long as the caller likes.
// The instance is not paused meanwhile.
func (all *instances) ask(ctx context.Context, instanceID string, call func(guest *wire.Client) error) error {
	i, release, err := all.reach(instanceID)
	if err != nil {
		return err
	}
	defer release()
	return i.explainCall(ctx, ctx, call(i.sandbox.guest.Instance()))
}

// waitFor makes a call of an instance's guest that takes as long as the caller
// and the programs like. The instance may be paused meanwhile; the call stands
// still then.
func (all *instances) waitFor(ctx context.Context, instanceID string, call func(guest *wire.Client) error) error {
	i, release, err := all.reach(instanceID)
	if err != nil {
		return err
	}
	release()
	return i.explainCall(ctx, ctx, call(i.sandbox.guest.Instance()))
}

// read opens something that is read after its call has returned.
func (all *instances) read(ctx context.Context, instanceID string, open func(guest *wire.Client) (io.ReadCloser, error)) (io.ReadCloser, error) {
	i, release, err := all.reach(instanceID)
	if err != nil {
		return nil, err
	}
	content, err := open(i.sandbox.guest.Instance())
	if err != nil {
		release()
		return nil, i.explainCall(ctx, ctx, err)
	}
	return &reading{content, sync.OnceFunc(release), func(err error) error { return i.explainCall(ctx, ctx, err) }}, nil
}

// reach finds an instance for a call that its guest answers, and keeps it from
// being paused until release is called. With an error there is nothing to release.
func (all *instances) reach(instanceID string) (i *instance, release func(), err error) {
	if i, err = all.find(instanceID); err != nil {
		return nil, nil, err
	}
	if release, err = i.use(); err != nil {
		return nil, nil, err
	}
	return i, release, nil
}

// explainCall puts the failure of a call of the instance's guest into words. caller
// is the context of whoever asked, and call that of the call.
func (i *instance) explainCall(caller, call context.Context, err error) error {
	switch {
	case err == nil, caller.Err() != nil:
		return err
	case errors.Is(context.Cause(call), errNoAnswer):
		return sdk.Errorf(sdk.CodeUnavailable, "the sandbox does not answer")
	case errors.Is(err, wire.ErrPluginGone), errors.Is(err, context.Canceled):
		// The guest itself never cancels: its connection was closed.
		return i.callLost(caller)
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
