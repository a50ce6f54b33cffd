package provider

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// reach is whether the API server answers, as it was asked last. While it does not, nobody
// waits for a pod, which would not come: another provider may have one.
type reach struct {
	mu   sync.Mutex
	lost error // nil while it answers
	// waits are those that end when it does not any more.
	waits map[*context.CancelCauseFunc]struct{}
}

// bound returns a context that ends when the API server does not answer. The caller owes a
// call of release.
func (r *reach) bound(ctx context.Context) (bounded context.Context, release func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost != nil {
		cancel(r.lost)
	}
	if r.waits == nil {
		r.waits = map[*context.CancelCauseFunc]struct{}{}
	}
	r.waits[&cancel] = struct{}{}
	return bounded, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waits, &cancel)
		cancel(nil)
	}
}

// isLost says whether the API server did not answer when it was asked last.
func (r *reach) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost != nil
}

// note takes down whether the API server answers; err is why it does not.
func (r *reach) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost = nil; err == nil {
		return
	}
	// The cause is in the log of the plugin.
	away := sdk.Errorf(sdk.CodeConnectionFailed, "the API server does not answer")
	away.NoEffect = true
	r.lost = away
	for cancel := range r.waits {
		(*cancel)(r.lost)
	}
}

// isUnsent says that a call has not left this machine, for there was no connection.
func isUnsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
