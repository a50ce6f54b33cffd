package instance

import (
	"sync"
	"time"
)

// clock calls expired when a time is over that does not pass while it is paused.
type clock struct {
	mu     sync.Mutex
	timer  *time.Timer
	left   time.Duration
	since  time.Time // when it was last resumed
	paused bool
	ended  bool
}

func newClock(d time.Duration, expired func()) *clock {
	return &clock{timer: time.AfterFunc(d, expired), left: d, since: time.Now()}
}

func (c *clock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.paused && c.timer.Stop() {
		c.paused = true
		c.left -= time.Since(c.since)
	}
}

func (c *clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused && !c.ended {
		c.paused = false
		c.since = time.Now()
		c.timer.Reset(c.left)
	}
}

// restart has the whole time before it again, unless it is over.
func (c *clock) restart(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && !c.paused && c.timer.Stop() {
		c.left, c.since = d, time.Now()
		c.timer.Reset(d)
	}
}

func (c *clock) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.timer.Stop()
}
