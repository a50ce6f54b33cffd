package docker

import (
	"fmt"
	"time"

	"github.com/docker/docker/api/types/events"
)

// eventsRetry is how long to wait before the engine is asked again for its
// events.
const eventsRetry = time.Second

// watchMemory notes which sandboxes ran out of memory. It cannot be asked of a
// container afterwards: with its end it is removed, and its cgroup too.
func (r *Runtime) watchMemory() {
	since := time.Now()
	for r.life.Err() == nil {
		selected := r.mine()
		selected.Add("type", string(events.ContainerEventType))
		selected.Add("event", string(events.ActionOOM))
		messages, lost := r.engine.Events(r.life, events.ListOptions{
			Since: fmt.Sprintf("%d.%09d", since.Unix(), since.Nanosecond()), Filters: selected,
		})
		since = r.noteMemory(messages, lost, since)
		select {
		case <-time.After(eventsRetry):
		case <-r.life.Done():
		}
	}
}

// noteMemory returns, when the events end, the time from which to ask again.
func (r *Runtime) noteMemory(messages <-chan events.Message, lost <-chan error, since time.Time) time.Time {
	for {
		select {
		case m := <-messages:
			since = time.Unix(0, m.TimeNano)
			r.mu.Lock()
			s := r.sandboxes[m.Actor.Attributes["name"]]
			r.mu.Unlock()
			if s != nil {
				s.memoryOnce.Do(func() { close(s.outOfMemory) })
			}
		case err := <-lost:
			if r.life.Err() == nil {
				r.o.Logger.Warn("the Docker Engine's events ended; asking again", "error", err)
			}
			return since
		}
	}
}
