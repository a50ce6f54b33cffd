// Package groupcommit has all changes that wait at a time share one transaction: what they
// wait for, a disk or a database, is waited for once for all of them, and nobody waits for
// company. What a transaction is, and how one fails, is the business of who attempts it:
// the state file (store) and the database (store/postgres).
package groupcommit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// Most bounds how many changes share one transaction, and how many wait in line before
	// their callers do.
	Most = 256
	// standardPatience is how long a change may take unless somebody says otherwise.
	standardPatience = 30 * time.Second
	// retryAfter is when it is worth to ask again after a change that took too long.
	retryAfter = time.Second
)

// Whom an error of Attempt is about, in the place of the number of a change.
const (
	// Everybody says that the error is the transaction's, and so that of all changes. A
	// transaction that is durable is one without an error.
	Everybody = -1
	// Somebody says that the error is one change's, and nobody knows whose.
	Somebody = -2
)

// Attempt carries changes out in one transaction, all or none. about is the number of the
// change that failed, or one of the two above.
type Attempt[C any] func(changes []C) (about int, err error)

// Line is where changes wait for their transaction. Its methods may be called concurrently.
type Line[C any] struct {
	attempt Attempt[C]
	slow    string
	// patience is how long a change may take, in nanoseconds.
	patience atomic.Int64
	waiting  chan *entry[C]
	closing  chan struct{}
	once     sync.Once
	served   chan struct{} // closed when Serve has ended
}

// entry is one change in line.
type entry[C any] struct {
	ctx     context.Context
	change  C
	outcome chan error // has room for the one answer
}

// New makes a line. slow is what is wrong when a change takes too long, as its caller is told.
// Serve must be called.
func New[C any](attempt Attempt[C], slow string) *Line[C] {
	l := &Line[C]{
		attempt: attempt, slow: slow,
		waiting: make(chan *entry[C], Most), closing: make(chan struct{}), served: make(chan struct{}),
	}
	l.SetPatience(0)
	return l
}

// SetPatience sets how long a change may take whose caller would wait longer; 0 means 30 s.
func (l *Line[C]) SetPatience(d time.Duration) {
	l.patience.Store(int64(cmp.Or(d, standardPatience)))
}

// Patience is how long a change may take.
func (l *Line[C]) Patience() time.Duration { return time.Duration(l.patience.Load()) }

// Closing is closed when nothing more is taken.
func (l *Line[C]) Closing() <-chan struct{} { return l.closing }

// Len is how many changes wait.
func (l *Line[C]) Len() int { return len(l.waiting) }

// Do returns when a change is durable, or an error when it is not known to be: that of the
// attempt as it is; that of ctx when it has ended; or one with SB009 after Close, and when the
// patience is over. When ctx or the patience ended, the change may or may not come to be done.
func (l *Line[C]) Do(ctx context.Context, change C) error {
	ctx, cancel := context.WithTimeout(ctx, l.Patience())
	defer cancel()
	err := l.wait(&entry[C]{ctx: ctx, change: change, outcome: make(chan error, 1)})
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(err, ctx.Err()) {
		slow := sdk.Errorf(sdk.CodeUnavailable, "%s", l.slow)
		slow.RetryAfter = retryAfter
		return slow
	}
	return err
}

func (l *Line[C]) wait(e *entry[C]) error {
	select {
	case l.waiting <- e:
	case <-l.closing:
		return Closed()
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
	select {
	case err := <-e.outcome:
		return err
	case <-e.ctx.Done():
		return e.ctx.Err()
	case <-l.served:
		// It may have been answered in the end.
		select {
		case err := <-e.outcome:
			return err
		default:
			return Closed()
		}
	}
}

// Closed is what comes after Close.
func Closed() error { return sdk.Errorf(sdk.CodeUnavailable, "the broker is shutting down") }

// Serve carries changes out until Close, and then those that were in line. look is called
// at each tick between transactions; both may be nil.
func (l *Line[C]) Serve(ticks <-chan time.Time, look func()) {
	defer close(l.served)
	for {
		select {
		case first := <-l.waiting:
			l.commit(l.gather(first))
		case <-ticks:
			look()
		case <-l.closing:
			l.finish()
			return
		}
	}
}

func (l *Line[C]) finish() {
	for {
		select {
		case first := <-l.waiting:
			l.commit(l.gather(first))
		default:
			return
		}
	}
}

// Close takes no more changes, and returns when Serve has ended.
func (l *Line[C]) Close() {
	l.once.Do(func() { close(l.closing) })
	<-l.served
}

// gather returns the changes that wait, without those whose callers have gone.
func (l *Line[C]) gather(first *entry[C]) []*entry[C] {
	var group []*entry[C]
	for next := first; ; {
		if err := next.ctx.Err(); err != nil {
			next.outcome <- err
		} else {
			group = append(group, next)
		}
		if len(group) == Most {
			return group
		}
		select {
		case next = <-l.waiting:
		default:
			return group
		}
	}
}

// commit carries out a group. A change that fails is left out, and the others begin again
// without it. It is run alone then, since it may have failed because of what others of the
// group did.
func (l *Line[C]) commit(group []*entry[C]) {
	var failed []*entry[C]
	for len(group) > 0 {
		about, err := l.try(group)
		if about == Everybody || len(group) == 1 {
			for _, e := range group {
				e.outcome <- err
			}
			break
		}
		if about == Somebody {
			failed = append(failed, group...)
			break
		}
		failed = append(failed, group[about])
		group = slices.Delete(group, about, about+1)
	}
	for _, e := range failed {
		_, err := l.try([]*entry[C]{e})
		e.outcome <- err
	}
}

func (l *Line[C]) try(group []*entry[C]) (about int, err error) {
	changes := make([]C, len(group))
	for n, e := range group {
		changes[n] = e.change
	}
	return l.attempt(changes)
}
