package frontdoor

import "sync"

// maxCounts bounds how many contexts have their executions counted. Where there are more,
// some are counted anew.
const maxCounts = 1 << 14

// Counts numbers the executions of contexts, as notebooks do, for as long as this process
// lives. K tells one context from all others. The zero value has counted nothing.
type Counts[K comparable] struct {
	mu   sync.Mutex
	last map[K]int
}

// Next is the number of one more execution.
func (c *Counts[K]) Next(context K) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[K]int{}
	}
	if _, known := c.last[context]; !known && len(c.last) >= maxCounts {
		for other := range c.last {
			delete(c.last, other)
			break
		}
	}
	c.last[context]++
	return c.last[context]
}

// Last is the number of the last one.
func (c *Counts[K]) Last(context K) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[context]
}

// Forget has a context counted anew.
func (c *Counts[K]) Forget(context K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, context)
}
