package api

import (
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// bodyBudget counts the bytes of bodies that are in memory or shall be: fasthttp makes
// room for a whole body when it has seen its headers, although the body may never come.
// A body counts from its headers to the end of the request.
//
// fasthttp tells headerReceived nothing but the headers, so these are how a body is
// known again: each connection has one place for them at a time.
type bodyBudget struct {
	mu    sync.Mutex
	held  map[*fasthttp.RequestHeader]heldBody
	all   int64
	owner map[string]int64
}

type heldBody struct {
	owner   string
	bytes   int64
	since   time.Time
	refused bool
	arrived bool
}

// abandoned is when a body that has not come can come no more: its connection has been
// given up, whatever fasthttp has told of it.
const abandoned = 2 * tokenTimeout

func newBodyBudget() *bodyBudget {
	return &bodyBudget{held: map[*fasthttp.RequestHeader]heldBody{}, owner: map[string]int64{}}
}

// take reports whether a body may come. What was taken for the same headers before, by
// another request, is given back.
func (b *bodyBudget) take(header *fasthttp.RequestHeader, owner string, bytes, perOwner, all int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveBack(header)
	now := time.Now()
	if b.all+bytes > all || b.owner[owner]+bytes > perOwner {
		for other, held := range b.held {
			if !held.arrived && now.Sub(held.since) > abandoned {
				b.giveBack(other)
			}
		}
	}
	// One body may be as large as it likes, up to the limit of a request.
	refused := b.all > 0 && b.all+bytes > all || b.owner[owner] > 0 && b.owner[owner]+bytes > perOwner
	if refused {
		bytes = 0
	}
	b.held[header] = heldBody{owner: owner, bytes: bytes, since: now, refused: refused}
	b.all += bytes
	b.owner[owner] += bytes
	return !refused
}

// arrive says that the body is there, as long as it is.
func (b *bodyBudget) arrive(header *fasthttp.RequestHeader, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held, ok := b.held[header]
	if !ok {
		return
	}
	b.all += bytes - held.bytes
	b.owner[held.owner] += bytes - held.bytes
	held.bytes, held.arrived = bytes, true
	b.held[header] = held
}

// release ends the request, and reports whether its body was refused.
func (b *bodyBudget) release(header *fasthttp.RequestHeader) (refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	refused = b.held[header].refused
	b.giveBack(header)
	return refused
}

// giveBack is called with mu held.
func (b *bodyBudget) giveBack(header *fasthttp.RequestHeader) {
	held, ok := b.held[header]
	if !ok {
		return
	}
	delete(b.held, header)
	b.all -= held.bytes
	if b.owner[held.owner] -= held.bytes; b.owner[held.owner] == 0 {
		delete(b.owner, held.owner)
	}
}
