package peer

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Living says of brokers whether they live; the directory does. It is asked while calls are
// under way that were passed on.
type Living interface {
	// Lives reports whether the broker with that ID counts as alive. epoch is that of the
	// process which it is: another one means another process. A broker that nobody knows does
	// not live.
	Lives(ctx context.Context, id string) (epoch int64, alive bool, err error)
}

const (
	// watchInterval lies between two looks at a peer that has calls.
	watchInterval = time.Second
	// doubt is how long after the directory was away a peer is not believed to be dead that
	// counts as such: nobody could say meanwhile that it lives.
	doubt = 5 * time.Second
)

// errSilent is what became of a call whose owner does not live any more, without having ended
// the connection: it stands still, or its machine is gone. What it has done there nobody knows.
var errSilent = func() error {
	e := sdk.Errorf(sdk.CodeUnavailable, "The broker that has it does not answer any more. What was asked for may have been done.")
	e.RetryAfter = retryAfter
	return e
}()

// watches look after the peers that calls are under way at: one goroutine for each such peer,
// from the first of these calls to the end of the last.
type watches struct {
	living   Living // nil for nobody who knows
	interval time.Duration
	doubt    time.Duration

	mu    sync.Mutex
	peers map[string]*watch
	group sync.WaitGroup
}

// watch is that of one peer.
type watch struct {
	calls map[*underway]struct{}
	end   context.CancelFunc
}

// underway is a call at a peer.
type underway struct {
	cancel context.CancelCauseFunc
	// epoch of the process that has it, as soon as the directory was asked once; 0 before.
	epoch int64
}

func newWatches(living Living) *watches {
	return &watches{living: living, interval: watchInterval, doubt: doubt, peers: map[string]*watch{}}
}

// follow returns a context for a call at a peer, which ends with errSilent as its cause when
// the peer does not live any more. done must be called, and may be more than once.
func (w *watches) follow(ctx context.Context, id string) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if w.living == nil {
		return ctx, func() { cancel(nil) }
	}
	call := &underway{cancel: cancel}
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.peers[id]
	if at == nil {
		life, end := context.WithCancel(context.Background())
		at = &watch{calls: map[*underway]struct{}{}, end: end}
		w.peers[id] = at
		w.group.Go(func() { w.run(life, id, at) })
	}
	at.calls[call] = struct{}{}
	return ctx, func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(at.calls, call)
		if len(at.calls) == 0 && w.peers[id] == at {
			delete(w.peers, id)
			at.end()
		}
	}
}

// run looks at a peer until life ends.
func (w *watches) run(life context.Context, id string, at *watch) {
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	doubted := time.Now().Add(w.doubt)
	for {
		select {
		case <-life.Done():
			return
		case <-ticker.C:
		}
		began := w.begun(at)
		ctx, cancel := context.WithTimeout(life, directoryTimeout)
		epoch, alive, err := w.living.Lives(ctx, id)
		cancel()
		switch {
		case err != nil:
			doubted = time.Now().Add(w.doubt)
		case alive:
			doubted = time.Time{}
			w.endOthers(began, epoch)
		case time.Now().After(doubted):
			for _, call := range began {
				call.cancel(errSilent)
			}
		}
	}
}

// begun are the calls at a peer that were under way before it is looked at.
func (w *watches) begun(at *watch) (calls []*underway) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for call := range at.calls {
		calls = append(calls, call)
	}
	return calls
}

// endOthers ends the calls that another process had, before the one with that epoch: what it
// has not answered nobody answers any more. Nobody else touches the epochs of these calls.
func (w *watches) endOthers(calls []*underway, epoch int64) {
	for _, call := range calls {
		if call.epoch == 0 {
			call.epoch = epoch
		}
		if call.epoch != epoch {
			call.cancel(errSilent)
		}
	}
}

// close waits for the end of all goroutines. No call may be under way that does not end.
func (w *watches) close() { w.group.Wait() }
