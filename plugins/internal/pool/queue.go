package pool

import (
	"iter"
	"slices"
)

// waiter is somebody who waits for a sandbox.
type waiter[S Sandbox] struct {
	tenant, template string
	reuse            bool       // one that the tenant had before will do
	place            bool       // only room for a sandbox of its own; it has no template
	got              chan S     // buffered
	failed           chan error // buffered
}

// queue holds those who wait. Tenants take turns, one sandbox each; among the
// requests of one tenant the first to come is the first to be served. So what a
// tenant asks for is delayed by others by one turn of each at most, however many
// requests they have.
type queue[S Sandbox] struct {
	// lines are the tenants who wait, whose turn is next first.
	lines []*line[S]
	// waiting counts by template.
	waiting map[string]int
	size    int
}

// line is what one tenant waits for, never empty.
type line[S Sandbox] struct {
	tenant  string
	waiters []*waiter[S]
}

// push adds a waiter and says how many were waiting before, and how many of them
// for the same tenant.
func (q *queue[S]) push(w *waiter[S]) (before, own int) {
	before = q.size
	q.size++
	q.waiting[w.template]++
	for _, l := range q.lines {
		if l.tenant == w.tenant {
			own = len(l.waiters)
			l.waiters = append(l.waiters, w)
			return before, own
		}
	}
	q.lines = append(q.lines, &line[S]{w.tenant, []*waiter[S]{w}})
	return before, 0
}

// pop takes out who is next to get a sandbox of a template, nil if nobody wants
// one. With that the tenant has had its turn.
func (q *queue[S]) pop(template string) *waiter[S] {
	if q.waiting[template] == 0 {
		return nil
	}
	for _, l := range q.lines {
		for _, w := range l.waiters {
			if w.template != template {
				continue
			}
			q.remove(w)
			if i := slices.Index(q.lines, l); i >= 0 {
				q.lines = append(slices.Delete(q.lines, i, i+1), l)
			}
			return w
		}
	}
	return nil
}

// popReuse takes out who of a tenant waits longest for a sandbox of a template and takes
// one that the tenant had before; nil for nobody. It costs the tenant no turn: nobody
// else could have that one.
func (q *queue[S]) popReuse(tenant, template string) *waiter[S] {
	for _, l := range q.lines {
		if l.tenant != tenant {
			continue
		}
		for _, w := range l.waiters {
			if w.reuse && w.template == template {
				q.remove(w)
				return w
			}
		}
	}
	return nil
}

// remove takes a waiter out and reports whether it was still there.
func (q *queue[S]) remove(w *waiter[S]) bool {
	for i, l := range q.lines {
		j := slices.Index(l.waiters, w)
		if j < 0 {
			continue
		}
		l.waiters = slices.Delete(l.waiters, j, j+1)
		if len(l.waiters) == 0 {
			q.lines = slices.Delete(q.lines, i, i+1)
		}
		q.size--
		if q.waiting[w.template]--; q.waiting[w.template] == 0 {
			delete(q.waiting, w.template)
		}
		return true
	}
	return false
}

// inTurn yields those who wait in the order in which they will be served if all
// sandboxes suit all.
func (q *queue[S]) inTurn() iter.Seq[*waiter[S]] {
	return func(yield func(*waiter[S]) bool) {
		lines := slices.Clone(q.lines)
		for turn := 0; len(lines) > 0; turn++ {
			lines = slices.DeleteFunc(lines, func(l *line[S]) bool { return turn >= len(l.waiters) })
			for _, l := range lines {
				if !yield(l.waiters[turn]) {
					return
				}
			}
		}
	}
}

// refuse empties the queue with an error for all.
func (q *queue[S]) refuse(err error) {
	for w := range q.inTurn() {
		w.failed <- err
	}
	q.lines, q.size = nil, 0
	clear(q.waiting)
}
