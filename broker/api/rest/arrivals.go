package rest

import (
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// arrivals are the requests between their headers and their end: who sends each, so
// that a token is looked at once, and the bytes of bodies that are in memory or shall
// be. fasthttp makes room for a whole body when it has seen its headers, although the
// body may never come.
//
// fasthttp tells headerReceived nothing but the headers, so these are how a request is
// known again: each connection has one place for them at a time.
type arrivals struct {
	mu    sync.Mutex
	known map[*fasthttp.RequestHeader]arrival
	all   int64
	owner map[string]int64
	// swept is how many there were when those that come no more were looked for.
	swept int
}

type arrival struct {
	who     caller
	bytes   int64
	since   time.Time
	refused bool
	arrived bool
}

// abandoned is when a body that has not come can come no more: its connection has been
// given up, whatever fasthttp has told of it.
const abandoned = 2 * tokenTimeout

// enoughArrivals is how many requests there are before anybody looks for those that
// come no more.
const enoughArrivals = 1024

func newArrivals() *arrivals {
	return &arrivals{known: map[*fasthttp.RequestHeader]arrival{}, owner: map[string]int64{}}
}

// take notes a request, and reports whether its body may come. What was noted for the
// same headers before, by another request, is given back. Strangers' bodies, which are
// small, do not count.
func (a *arrivals) take(header *fasthttp.RequestHeader, who caller, bytes int64, bounds Bounds) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.giveBack(header)
	if !who.known && !who.admin {
		bytes = 0
	}
	owner, now := who.tenant.Name, time.Now()
	full := func(reserve bool) bool {
		return (reserve || a.all > 0) && a.all+bytes > bounds.Bodies || (reserve || a.owner[owner] > 0) && a.owner[owner]+bytes > bounds.BodiesPerTenant
	}
	if bytes > 0 && full(true) || len(a.known) >= max(enoughArrivals, 2*a.swept) {
		for other, held := range a.known {
			if !held.arrived && now.Sub(held.since) > abandoned {
				a.giveBack(other)
			}
		}
		a.swept = len(a.known)
	}
	// One body may be as large as it likes, up to the limit of a request.
	refused := bytes > 0 && full(false)
	if refused {
		bytes = 0
	}
	a.known[header] = arrival{who: who, bytes: bytes, since: now, refused: refused}
	a.count(owner, bytes)
	return !refused
}

// caller is who sends the request.
func (a *arrivals) caller(header *fasthttp.RequestHeader) (who caller, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held, ok := a.known[header]
	return held.who, ok
}

// arrive says that the body is there, as long as it is.
func (a *arrivals) arrive(header *fasthttp.RequestHeader, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held, ok := a.known[header]
	if !ok {
		return
	}
	if held.bytes > 0 {
		a.count(held.who.tenant.Name, bytes-held.bytes)
		held.bytes = bytes
	}
	held.arrived = true
	a.known[header] = held
}

// release ends the request, and reports whether its body was refused.
func (a *arrivals) release(header *fasthttp.RequestHeader) (refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused = a.known[header].refused
	a.giveBack(header)
	return refused
}

// giveBack is called with mu held.
func (a *arrivals) giveBack(header *fasthttp.RequestHeader) {
	if held, ok := a.known[header]; ok {
		delete(a.known, header)
		a.count(held.who.tenant.Name, -held.bytes)
	}
}

// count is called with mu held.
func (a *arrivals) count(owner string, bytes int64) {
	a.all += bytes
	if a.owner[owner] += bytes; a.owner[owner] == 0 {
		delete(a.owner, owner)
	}
}
