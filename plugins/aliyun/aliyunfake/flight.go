package aliyunfake

import (
	"net/http"
	"sync"
)

// flight are the calls of one action that are under way.
type flight struct {
	now, most int
	// opens is how many at once open the gate; 0 if there is none.
	opens int
	gate  chan struct{}
}

// flightOf needs c.mu.
func (c *Cloud) flightOf(action string) *flight {
	f := c.flights[action]
	if f == nil {
		f = &flight{}
		c.flights[action] = f
	}
	return f
}

// open needs c.mu.
func (f *flight) open() {
	if f.gate != nil {
		close(f.gate)
		f.gate = nil
	}
}

// Hold keeps back the calls of an action until n of them are under way at once, or until
// open is called. All later ones pass.
func (c *Cloud) Hold(action string, n int) (open func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flightOf(action)
	f.open()
	f.opens, f.gate = n, make(chan struct{})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f.open()
	}
}

// AtOnce is how many calls of an action are under way, and the most that ever were.
func (c *Cloud) AtOnce(action string) (now, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flightOf(action)
	return f.now, f.most
}

// enter counts a call, and keeps it back at a gate. The call counts until leave is called.
func (c *Cloud) enter(r *http.Request, action string) (leave func()) {
	c.mu.Lock()
	f := c.flightOf(action)
	f.now++
	f.most = max(f.most, f.now)
	if f.now >= f.opens {
		f.open()
	}
	gate := f.gate
	c.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
		}
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f.now--
	})
}

// Hollow adds sandboxes in which nothing runs: a record each, which the lists have and
// which can be looked at, paused and destroyed.
func (c *Cloud) Hollow(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.boxes[id] = &box{number: c.made, id: id, template: "python", status: statusReady, created: c.now(), used: c.now(), idle: lifetime}
		c.order = append(c.order, id)
		c.made++
	}
}
