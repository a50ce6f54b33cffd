package broker

import "slices"

// What is left on a revision whose process has ended is served by its heir, the one
// that took over from it, and by that one's heir when it has ended too. A line ends
// with a provider that is removed from the configuration.

// serving returns the revision that serves what is left on this one: itself as long as
// it has no heir.
func (r *revision) serving() *revision {
	for {
		r.mu.Lock()
		heir := r.heir
		r.mu.Unlock()
		if heir == nil {
			return r
		}
		r = heir
	}
}

// follow sends calls for this revision to the one after it from now on.
func (r *revision) follow(heir *revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heir = heir
}

// bequeath leaves the instances of a revision that has ended to its heir. It reports
// false if there is none, or if that one's line has ended: nobody can reach them then.
func (c *catalog) bequeath(old, heir *revision, instances func(*revision) int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if heir == nil || heir.serving().over {
		return false
	}
	old.follow(heir)
	c.bequeathed = slices.DeleteFunc(c.bequeathed, func(r *revision) bool { return instances(r) == 0 })
	if !slices.Contains(c.bequeathed, old) {
		c.bequeathed = append(c.bequeathed, old)
	}
	return true
}

// line returns a revision and those that have left their instances to it.
func (c *catalog) line(r *revision) []*revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lineOf(r)
}

func (c *catalog) lineOf(r *revision) []*revision {
	line := []*revision{r}
	for _, old := range c.bequeathed {
		if old != r && old.serving() == r {
			line = append(line, old)
		}
	}
	return line
}

// endLine makes a revision the last that serves what was left to it, and returns all
// that nobody serves from now on.
func (c *catalog) endLine(last *revision) []*revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	last.over = true
	line := c.lineOf(last)
	c.bequeathed = slices.DeleteFunc(c.bequeathed, func(r *revision) bool { return slices.Contains(line, r) })
	return line
}
