package pool

import (
	"fmt"
	"maps"
	"time"
)

// Counts are totals since the start.
type Counts struct {
	// Hits are requests that found a ready sandbox, Waits those that did not,
	// GivenUp those among the latter whose patience or context ended first.
	Hits, Waits, GivenUp int64
	// WaitTime is what all Waits took that are over.
	WaitTime time.Duration
	// Made and Failed count the tries to make a sandbox.
	Made, Failed int64
	// MakeTime is what all those Made took, LongestMake the one that took most.
	MakeTime, LongestMake time.Duration
	// Ready sandboxes that went without being used: Aged were replaced for
	// their age, Unwell did not answer a check, Ended ended by themselves.
	Aged, Unwell, Ended int64
	// Reused are requests that got a sandbox which their tenant had before.
	Reused int64
}

func (c *Counts) made(took time.Duration) {
	c.Made++
	c.MakeTime += took
	c.LongestMake = max(c.LongestMake, took)
}

// HandOuts are sandboxes that requests have got: ready ones, and those that they waited
// for.
type HandOuts struct{ Ready, Awaited int64 }

// Stats is the state of a pool.
type Stats struct {
	Counts
	// Ready sandboxes by template.
	Ready map[string]int
	// HandedOut by template since the start.
	HandedOut              map[string]HandOuts
	Making, InUse, Waiting int
	// Failures in a row, and the last of them.
	Failures int
	Failure  error
}

// Stats returns the state of the pool.
func (p *Pool[S]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{
		Counts: p.counts, Ready: map[string]int{}, HandedOut: maps.Clone(p.handedOut),
		InUse: p.inUse, Waiting: p.waiters.size, Failures: p.failures, Failure: p.failure,
	}
	for template := range p.demand {
		s.Ready[template] = len(p.ready[template])
		s.Making += p.making[template]
	}
	return s
}

// handOut counts a sandbox that a request has got. It is called with the lock held.
func (p *Pool[S]) handOut(template string, ready bool) {
	n := p.handedOut[template]
	if ready {
		n.Ready++
	} else {
		n.Awaited++
	}
	p.handedOut[template] = n
}

func (p *Pool[S]) waited(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.WaitTime += took
}

// String describes the pool in a line, for health details.
func (s Stats) String() string {
	return fmt.Sprintf("ready=%v making=%d in_use=%d waiting=%d", s.Ready, s.Making, s.InUse, s.Waiting)
}
