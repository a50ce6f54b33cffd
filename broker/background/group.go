// Package background runs goroutines that somebody owns: a Group knows its
// goroutines, survives their panics and waits for them.
//
// A panic in a goroutine ends the whole daemon, whatever the HTTP framework
// recovers; so what is done for requests runs in a Group and not under a bare go
// statement. Supervision (package pluginhost) does not: a daemon that went on
// without it would be of no use.
package background

import (
	"runtime/debug"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// Group is a set of goroutines with one owner. It must not be copied.
type Group struct {
	logger hclog.Logger
	wg     sync.WaitGroup
}

// NewGroup returns an empty group that logs panics.
func NewGroup(logger hclog.Logger) *Group {
	return &Group{logger: logger}
}

// Go runs task in a goroutine. A panic is logged with its stack and ends that
// goroutine only; a task that others wait for signals in a defer.
func (g *Group) Go(name string, task func()) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		defer func() {
			if r := recover(); r != nil {
				g.logger.Error("panic in the background", "task", name, "panic", r, "stack", string(debug.Stack()))
			}
		}()
		task()
	}()
}

// Wait returns when all tasks have ended, those included that tasks started.
func (g *Group) Wait() { g.wg.Wait() }
