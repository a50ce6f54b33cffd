package guest

import (
	"context"
	"sync"
	"time"
)

// maxReserve is how many interpreters of a language are kept ready at most. More would
// not be made any sooner: what makes them makes one after the other.
const maxReserve = 2

// restartDelay is how long after the first execution the next interpreter is made. Most
// instances run one execution and are then destroyed: for them it would be wasted.
const restartDelay = 50 * time.Millisecond

// reserveIdle is how long after the last execution a reserve that demand has made grow
// is given up.
const reserveIdle = 10 * time.Second

// reserve keeps interpreters of one language ready: as many as the sandbox was prepared
// for, and more once executions come faster than interpreters are made.
type reserve struct {
	make func() (*process, error)
	room func() bool // whether there is memory for more than was asked for

	mu      sync.Mutex
	least   int // kept without any demand
	wanted  int
	taken   int
	waiting []*ahead // the oldest first
	idle    *time.Timer
}

// ahead is an interpreter that was started before anybody needs it.
type ahead struct {
	ready   chan struct{} // closed when the rest is valid
	process *process
	err     error
}

func newReserve(least int, room func() bool, make func() (*process, error)) *reserve {
	r := &reserve{make: make, room: room, least: least, wanted: least}
	r.idle = time.AfterFunc(reserveIdle, r.shrink)
	r.idle.Stop()
	return r
}

// warmUp makes what the sandbox was prepared for, and returns when it is ready.
func (r *reserve) warmUp(ctx context.Context) error {
	r.mu.Lock()
	r.fill()
	waiting := r.waiting
	r.mu.Unlock()
	for _, a := range waiting {
		select {
		case <-a.ready:
			if a.err != nil {
				return a.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// take returns an interpreter that has run nothing before.
func (r *reserve) take() (*process, error) {
	r.mu.Lock()
	r.taken++
	r.idle.Reset(reserveIdle)
	var a *ahead
	if len(r.waiting) > 0 {
		a, r.waiting = r.waiting[0], r.waiting[1:]
	}
	if r.taken > 1 && (a == nil || !a.done()) && r.wanted < maxReserve && (r.wanted == 0 || r.room()) {
		r.wanted++
	}
	r.mu.Unlock()
	if a != nil {
		if <-a.ready; a.err == nil {
			return a.process, nil
		}
	}
	return r.make()
}

// replace is told of the end of an execution. Only then others are made: they would take
// the processor from it, and the fork server would be told late of its end.
func (r *reserve) replace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken > 1 {
		r.fill()
		return
	}
	time.AfterFunc(restartDelay, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fill()
	})
}

// fill begins to make what is missing. The caller holds mu.
func (r *reserve) fill() {
	for len(r.waiting) < r.wanted {
		a := &ahead{ready: make(chan struct{})}
		r.waiting = append(r.waiting, a)
		go func() {
			defer close(a.ready)
			a.process, a.err = r.make()
		}()
	}
}

// drain ends all that wait, so that nothing is forked or started any more by itself.
func (r *reserve) drain() {
	r.mu.Lock()
	r.idle.Stop()
	r.taken, r.wanted = 0, 0
	r.mu.Unlock()
	r.cut(0)
}

// refill undoes drain, and returns when what the sandbox was prepared for is ready.
func (r *reserve) refill(ctx context.Context) error {
	r.mu.Lock()
	r.wanted = r.least
	r.mu.Unlock()
	return r.warmUp(ctx)
}

// shrink ends what nobody has needed for a while.
func (r *reserve) shrink() {
	r.mu.Lock()
	r.wanted = r.least
	r.mu.Unlock()
	r.cut(r.least)
}

// cut ends those that wait but for the oldest.
func (r *reserve) cut(keep int) {
	r.mu.Lock()
	keep = min(keep, len(r.waiting))
	surplus := r.waiting[keep:]
	r.waiting = r.waiting[:keep:keep]
	r.mu.Unlock()
	for _, a := range surplus {
		if <-a.ready; a.err == nil {
			a.process.Kill()
			a.process.wait()
		}
	}
}

func (a *ahead) done() bool {
	select {
	case <-a.ready:
		return true
	default:
		return false
	}
}
