package retry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Repeat says which answers to a request allow to send it again.
type Repeat int

// The values of Repeat.
const (
	// Never sends a request once.
	Never Repeat = iota
	// IfRefused is for requests that must not have their effect twice, such as a
	// creation without a key: only after answers that say that nothing was done
	// (429, 503 with Retry-After), and where no connection was made.
	IfRefused
	// Always is for requests that can be repeated: reading, deleting, a creation
	// under a name of our own. After 408, 429, 500, 502, 503, 504, and after a
	// connection that was lost.
	Always
)

// maxDrained is how much of an answer is read so that its connection can be used
// again.
const maxDrained = 64 << 10

// HTTP sends a request until it is answered for good; send makes it anew each time,
// body included. It returns the last answer, whatever its status: closing its body
// and telling what is wrong is up to the caller. An error means that there is no
// answer.
func HTTP(ctx context.Context, p Policy, repeat Repeat, send func(context.Context) (*http.Response, error)) (*http.Response, error) {
	var last *http.Response
	resp, err := Do(ctx, p, func(ctx context.Context) (*http.Response, error) {
		discard(last)
		resp, err := send(ctx)
		last = resp
		switch {
		case err != nil && repeat.afterFailure(ctx, err):
			return nil, Again(err, 0)
		case err != nil:
			return nil, err
		case repeat.afterAnswer(resp):
			return resp, Again(errAnswer, After(resp.Header))
		}
		return resp, nil
	})
	if errors.Is(err, errAnswer) {
		return resp, nil
	}
	if err != nil {
		discard(last)
		return nil, err
	}
	return resp, nil
}

// errAnswer stands for an answer that is no good.
var errAnswer = errors.New("the service asks to try again")

func (r Repeat) afterAnswer(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return r != Never
	case http.StatusServiceUnavailable:
		return r == Always || r == IfRefused && resp.Header.Get("Retry-After") != ""
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return r == Always
	default:
		return false
	}
}

func (r Repeat) afterFailure(ctx context.Context, err error) bool {
	if ctx.Err() != nil || r == Never {
		return false
	}
	return r == Always || unconnected(err)
}

// After reads the header Retry-After: seconds, or a date as HTTP writes it. It is 0
// where there is none or it makes no sense, and for the past.
func After(header http.Header) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(time.Until(date), 0)
	}
	return 0
}

// discard lets the connection of an answer be used again.
func discard(resp *http.Response) {
	if resp == nil {
		return
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxDrained) // it is only about the connection
	resp.Body.Close()
}
