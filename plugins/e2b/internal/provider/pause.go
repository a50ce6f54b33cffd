package provider

import (
	"context"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// A pause breaks every connection into a sandbox, while its processes only stand still.
// What listens to one waits until the sandbox goes on, and listens again.

// standStill notes that the sandbox is being paused, or is.
func (sb *sandbox) standStill() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.standing == nil {
		sb.standing = make(chan struct{})
	}
}

// goOn notes that it runs.
func (sb *sandbox) goOn() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.standing != nil {
		close(sb.standing)
		sb.standing = nil
	}
}

// stands is closed when the sandbox goes on; nil if it runs.
func (sb *sandbox) stands() <-chan struct{} {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.standing
}

// awaitRunning waits until the sandbox is not paused.
func (sb *sandbox) awaitRunning(ctx context.Context) error {
	for {
		standing := sb.stands()
		if standing == nil {
			return ctx.Err()
		}
		select {
		case <-standing:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listens notes that the stream of a job is read, since the last pause.
func (sb *sandbox) listens(j *job) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.listeners == nil {
		sb.listeners = map[*job]int{}
	}
	sb.listeners[j] = sb.pauses
	sb.hear()
}

// leaves notes that nobody reads the stream of a job any more.
func (sb *sandbox) leaves(j *job) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	delete(sb.listeners, j)
	sb.hear()
}

// hear tells who waits for listeners. The caller holds mu.
func (sb *sandbox) hear() {
	if sb.heard != nil {
		close(sb.heard)
		sb.heard = nil
	}
}

// awaitListeners waits, after a pause, until all that listened listen again, so that
// nothing is lost of what follows on the resume.
func (sb *sandbox) awaitListeners(ctx context.Context) {
	for {
		sb.mu.Lock()
		missing := false
		for _, knows := range sb.listeners {
			missing = missing || knows < sb.pauses
		}
		if sb.heard == nil {
			sb.heard = make(chan struct{})
		}
		heard := sb.heard
		sb.mu.Unlock()
		if !missing {
			return
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return
		}
	}
}

// standsStill says whether a sandbox is paused, by us or by somebody else: of that only
// the API knows.
func (sb *sandbox) standsStill(ctx context.Context) bool {
	if sb.stands() != nil {
		return true
	}
	detail, err := sb.p.inspect(ctx, sb.id)
	if err != nil || detail.State != control.StatePaused {
		return false
	}
	sb.mu.Lock()
	sb.paused = true
	sb.mu.Unlock()
	sb.standStill()
	return true
}

// listening is how often a process is asked for after a pause: a sandbox that has just
// been resumed may take a moment.
var listening = retry.Policy{Attempts: 20, Min: 50 * time.Millisecond, Max: time.Second}

// listeningTimeout bounds how long a resume waits for those who listen.
const listeningTimeout = 3 * time.Second

// listenAgain listens to a process again when the sandbox goes on.
func (sb *sandbox) listenAgain(ctx context.Context, pid int) (*envd.Process, error) {
	return retry.Do(ctx, listening, func(context.Context) (process *envd.Process, err error) {
		if err := sb.awaitRunning(ctx); err != nil {
			return nil, err
		}
		process, err = ask(ctx, sb, func(c *envd.Client) (*envd.Process, error) { return c.Connect(ctx, pid) })
		if status := statusOf(err); isLost(err) || status >= 500 || status == http.StatusConflict || status == http.StatusTooManyRequests {
			sb.standsStill(ctx)
			return process, retry.Again(err, 0)
		}
		return process, err
	})
}
