package registry

import (
	"container/heap"
	"time"
)

// queue orders entries by a time. An entry is in it once, or not at all.
type queue struct {
	items []queued
	// index tells where the queue keeps the place of an entry, less than 0 for none.
	index func(*Entry) *int
}

type queued struct {
	at time.Time
	e  *Entry
}

func newQueue(index func(*Entry) *int) queue { return queue{index: index} }

func (q *queue) Len() int           { return len(q.items) }
func (q *queue) Less(i, j int) bool { return q.items[i].at.Before(q.items[j].at) }

func (q *queue) Swap(i, j int) {
	q.items[i], q.items[j] = q.items[j], q.items[i]
	*q.index(q.items[i].e), *q.index(q.items[j].e) = i, j
}

// Push and Pop are for package heap.
func (q *queue) Push(x any) {
	item := x.(queued)
	*q.index(item.e) = len(q.items)
	q.items = append(q.items, item)
}

func (q *queue) Pop() any {
	last := len(q.items) - 1
	item := q.items[last]
	q.items[last] = queued{}
	q.items = q.items[:last]
	*q.index(item.e) = -1
	return item
}

// set moves an entry to a time; the zero time takes it out.
func (q *queue) set(e *Entry, at time.Time) {
	i := *q.index(e)
	switch {
	case at.IsZero():
		q.remove(e)
	case i < 0:
		heap.Push(q, queued{at, e})
	default:
		q.items[i].at = at
		heap.Fix(q, i)
	}
}

func (q *queue) remove(e *Entry) {
	if i := *q.index(e); i >= 0 {
		heap.Remove(q, i)
	}
}

// due takes out those whose time has come.
func (q *queue) due(now time.Time) (entries []*Entry) {
	for len(q.items) > 0 && !now.Before(q.items[0].at) {
		entries = append(entries, heap.Pop(q).(queued).e)
	}
	return entries
}
