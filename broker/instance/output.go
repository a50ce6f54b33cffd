package instance

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Listener hears an execution while it runs. It is called by one goroutine at a
// time. A call may block, which slows the code down: nothing is kept for it.
// That time counts for the code's time limit, but not against the provider. The
// context of a call ends when the broker waits no longer; an error ends the
// execution.
type Listener interface {
	// Started tells where the code is about to run: Execution's ID, InstanceID
	// and Provider. It comes first, and once more if a session's instance proves
	// to be gone and a new one was made; nothing has run then.
	Started(ctx context.Context, where Execution) error
	// Stdout and Stderr take output in order, cut anywhere, up to the limit.
	// The bytes are the caller's.
	Stdout(ctx context.Context, p []byte) error
	Stderr(ctx context.Context, p []byte) error
	// Artifact takes an artifact.
	Artifact(ctx context.Context, a sdk.Artifact) error
}

// output takes what one execution makes to its listener or, where there is none, keeps
// it. The client of the plugin lets no more through than was asked for.
type output struct {
	ctx      context.Context // of the listener's calls
	listener Listener        // may be nil
	clock    *clock

	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	artifacts      []sdk.Artifact
	spoken         bool // the code has printed or made something
	closed         bool
}

var _ sdk.Output = (*output)(nil)

func newOutput(ctx context.Context, listener Listener, clock *clock) *output {
	return &output{ctx: ctx, listener: listener, clock: clock}
}

func (o *output) Stdout(p []byte) error { return o.write(p, &o.stdout, Listener.Stdout) }

func (o *output) Stderr(p []byte) error { return o.write(p, &o.stderr, Listener.Stderr) }

func (o *output) write(p []byte, kept *bytes.Buffer, heard func(Listener, context.Context, []byte) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return errShuttingDown
	case len(p) == 0:
		return nil
	}
	o.spoken = true
	if o.listener != nil {
		return o.tell(func() error { return heard(o.listener, o.ctx, p) })
	}
	kept.Write(p)
	return nil
}

func (o *output) tell(listener func() error) error {
	o.clock.pause()
	defer o.clock.resume()
	return listener()
}

// Artifact takes an artifact; there are no more than were asked for.
func (o *output) Artifact(a sdk.Artifact) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return errShuttingDown
	}
	o.spoken = true
	if o.listener != nil {
		return o.tell(func() error { return o.listener.Artifact(o.ctx, a) })
	}
	o.artifacts = append(o.artifacts, a)
	return nil
}

// ran reports whether there was any output, so that code has run.
func (o *output) ran() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.spoken
}

// close ends the output: what a provider sends after its answer is refused.
func (o *output) close(into *Execution) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	into.Stdout, into.Stderr, into.Artifacts = o.stdout.Bytes(), o.stderr.Bytes(), o.artifacts
}

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
