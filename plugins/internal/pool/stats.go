package pool

import (
	"fmt"
	"maps"
	"strconv"
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
	// Size is how many are kept ready, Max how many there may be in all; 0 for any number.
	Size, Max int
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
		Size: p.o.Size, Max: p.o.Max,
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

// Details are facts for people: how many sandboxes are ready of those that are to be, and in
// use of those that there may be.
func (s Stats) Details(size, most int64) map[string]string {
	ready := 0
	for _, n := range s.Ready {
		ready += n
	}
	return map[string]string{
		"ready": fmt.Sprintf("%d of %d", ready, size), "in_use": fmt.Sprintf("%d of %d", s.InUse, most),
		"making": strconv.Itoa(s.Making), "waiting": strconv.Itoa(s.Waiting),
	}
}
