package mcp

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// quietFor is how many times nothing is told where nothing was printed meanwhile.
const quietFor = 10

// progress tells a caller how far a run is, until stop.
type progress struct {
	mu      sync.Mutex
	message string
	changed bool
	stop    func()
}

// follow begins to tell. Where nobody wants to know it does nothing.
func (c call) follow(ctx context.Context) *progress {
	p := &progress{stop: func() {}}
	if c.tell == nil {
		return p
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	p.stop = func() {
		cancel()
		<-ended
	}
	go func() {
		defer close(ended)
		began, ticks := time.Now(), time.NewTicker(c.every)
		defer ticks.Stop()
		for quiet := 1; ; quiet++ {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			message, changed := p.last()
			if !changed && quiet < quietFor {
				continue
			}
			quiet = 0
			seconds := time.Since(began).Seconds()
			if !changed {
				message = fmt.Sprintf("running for %.0f s", seconds)
			}
			c.tell(ctx, seconds, message)
		}
	}()
	return p
}

// saw takes the last line of the output.
func (p *progress) saw(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if line != "" && line != p.message {
		p.message, p.changed = line, true
	}
}

func (p *progress) last() (message string, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.changed = false }()
	return p.message, p.changed
}
