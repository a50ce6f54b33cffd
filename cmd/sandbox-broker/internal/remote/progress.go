package remote

import (
	"fmt"
	"io"
	"time"
)

// patience is how long work may take before a person is told of it.
const patience = 500 * time.Millisecond

// progressEvery is how often a person is told.
const progressEvery = 200 * time.Millisecond

// progress tells a person on a terminal what takes its time, on a line that goes away.
type progress struct {
	to    io.Writer // nil where nobody sees it
	say   func() string
	shown bool
	done  chan struct{}
	ended chan struct{}
	began time.Time
}

// startProgress tells what say returns, with the time that it took so far, until stop is
// called. Where no person watches it tells nothing.
func startProgress(console *Console, say func() string) (stop func()) {
	if !console.watched {
		return func() {}
	}
	p := &progress{to: console.Err, say: say, done: make(chan struct{}), ended: make(chan struct{}), began: time.Now()}
	go p.tell()
	return func() {
		close(p.done)
		<-p.ended
	}
}

func (p *progress) tell() {
	defer close(p.ended)
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.done:
			if p.shown {
				fmt.Fprint(p.to, "\r\x1b[K")
			}
			return
		case <-ticker.C:
		}
		if took := time.Since(p.began); took >= patience {
			p.shown = true
			fmt.Fprintf(p.to, "\r\x1b[K%s (%ds)", p.say(), int(took.Seconds()))
		}
	}
}

// size is a number of bytes for people.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	amount, prefix := float64(n), 0
	for amount >= unit && prefix < len("KMGT") {
		amount /= unit
		prefix++
	}
	return fmt.Sprintf("%.1f %ciB", amount, "KMGT"[prefix-1])
}
