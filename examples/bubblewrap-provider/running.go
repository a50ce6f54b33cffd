package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// execution is one that has not ended.
type execution struct {
	instanceID, id string
	stop           context.CancelCauseFunc
	ended          chan struct{}
	process        atomic.Pointer[process] // nil before it begins
	interrupted    atomic.Bool
}

// interrupt asks the code to end, ends it a little later, and says whether there was
// somebody to ask.
func (e *execution) interrupt() bool {
	p := e.process.Load()
	if p == nil || !p.interrupt() {
		return false
	}
	if !e.interrupted.Swap(true) {
		time.AfterFunc(sdk.InterruptGrace, func() { e.stop(errInterrupted) })
	}
	return true
}

// running knows the executions in progress, for those who want to end them.
type running struct {
	mu  sync.Mutex
	all map[*execution]struct{}
}

func (r *running) add(e *execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*execution]struct{}{}
	}
	r.all[e] = struct{}{}
}

func (r *running) remove(e *execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, e)
	close(e.ended)
}

// in returns the executions in an instance, or all of them.
func (r *running) in(instanceID string) []*execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*execution
	for e := range r.all {
		if instanceID == everyInstance || e.instanceID == instanceID {
			found = append(found, e)
		}
	}
	return found
}

const everyInstance = ""

// end ends the executions in an instance, or all of them, and waits until they have.
func (r *running) end(ctx context.Context, instanceID string) error {
	ending := r.in(instanceID)
	for _, e := range ending {
		e.stop(errEnded)
	}
	for _, e := range ending {
		select {
		case <-e.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
