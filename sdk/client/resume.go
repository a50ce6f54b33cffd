package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

const acceptEvents = sse.MediaType

const (
	// maxResumes bounds how often in a row a connection is made again that brings nothing.
	maxResumes = 6
	// resumeDelay is the wait before the second of them; before each further one it
	// doubles.
	resumeDelay = 250 * time.Millisecond
)

// resumption makes the connection of a stream again where it breaks off.
type resumption struct {
	ctx   context.Context
	after string
	again func(ctx context.Context, after string) (*http.Response, error)
	tries int
}

func resuming(ctx context.Context, resp *http.Response, after string, again func(context.Context, string) (*http.Response, error)) *Events {
	e := NewEvents(resp.Body)
	e.resume = &resumption{ctx: ctx, after: after, again: again}
	return e
}

// next is Events.Next that makes the connection again.
func (e *Events) next() (Event, error) {
	for {
		event, err := e.reader.Next()
		r := e.resume
		if r == nil {
			return event, err
		}
		if err == nil {
			r.tries = 0
			if event.ID != "" {
				r.after = event.ID
			}
			if event.Name == EventDone || event.Name == EventError {
				e.resume = nil // what comes behind is the end
			}
			return event, nil
		}
		if errors.Is(err, sse.ErrTooLong) {
			return event, err
		}
		if again := r.connect(e); again != nil {
			return event, errors.Join(err, again)
		}
	}
}

// connect makes the connection again, or says why it cannot be.
func (r *resumption) connect(e *Events) error {
	_ = e.body.Close()
	for {
		if r.tries++; r.tries > maxResumes {
			return io.ErrUnexpectedEOF
		}
		if r.tries > 1 {
			timer := time.NewTimer(resumeDelay << (r.tries - 2))
			select {
			case <-timer.C:
			case <-r.ctx.Done():
				timer.Stop()
				return r.ctx.Err()
			}
		}
		resp, err := r.again(r.ctx, r.after) //nolint:bodyclose // Events.Close does
		if problem, refused := errors.AsType[*Problem](err); refused && !problem.Retryable {
			return problem
		}
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		if err != nil {
			continue
		}
		fresh := NewEvents(resp.Body)
		e.body, e.reader = fresh.body, fresh.reader
		return nil
	}
}
