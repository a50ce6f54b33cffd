package guestclient

import (
	"context"
	"sync"
	"time"
)

// start is the one answer to the question whether the guest took the code.
type start struct {
	decide sync.Once
	taken  chan struct{} // closed when it did
}

func newStart() *start { return &start{taken: make(chan struct{})} }

// seen says that the guest took the code, and whether that was news.
func (s *start) seen() bool {
	news := false
	s.decide.Do(func() {
		close(s.taken)
		news = true
	})
	return news
}

// awaitStart ends a call whose code the guest does not take. A guest that says
// meanwhile that it is well is busy, not lost, and is waited for again.
func (c *Client) awaitStart(ctx context.Context, s *start, bound time.Duration, cancel context.CancelCauseFunc) {
	for range startTries {
		select {
		case <-s.taken:
			return
		case <-ctx.Done():
			return
		case <-time.After(bound):
		}
		if !c.well(ctx) {
			break
		}
	}
	s.decide.Do(func() { cancel(ErrNotStarted) })
}

// well asks the guest whether it is well, for as long as it may take to start code.
func (c *Client) well(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	return c.Check(ctx) == nil
}
