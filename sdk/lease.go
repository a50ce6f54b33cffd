package sdk

import (
	"context"
	"sync"
	"time"
)

// Lease is the right of a broker to have anything done to its instances, where several brokers
// share their state. Whoever takes over from it has a higher epoch, and may do so a few seconds
// after the lease has ended. Its methods may be called concurrently; those of nil are those of
// a broker that is alone.
type Lease struct {
	mu    sync.Mutex
	epoch int64
	until time.Time // zero for a broker that is alone
}

// Extend notes that the lease of an epoch lasts that much longer from now. One of an earlier
// epoch than is known counts for nothing.
func (l *Lease) Extend(epoch int64, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := time.Now().Add(left)
	if epoch > l.epoch || epoch == l.epoch && until.After(l.until) {
		l.epoch, l.until = epoch, until
	}
}

// Held returns nil as long as the broker may have effects at all, and else CodeUnavailable
// with NoEffect: what is asked for is to be left undone.
func (l *Lease) Held() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.IsZero() || time.Now().Before(l.until) {
		return nil
	}
	e := Errorf(CodeUnavailable, "another broker may have the instance by now, since the lease of this one was not renewed in time")
	e.NoEffect, e.RetryAfter = true, time.Second
	return e
}

type leaseKey struct{}

// WithLease returns the context of a call of a provider in which LeaseOf works. Package serve
// makes it for each call.
func WithLease(ctx context.Context, l *Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// LeaseOf returns the lease of the broker that a call of the provider comes from. It is
// extended by each call, and by each probe of the health. A provider whose instances other
// brokers adopt asks it just before it has its service do something that cannot be undone.
func LeaseOf(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}
