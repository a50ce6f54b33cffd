package retry

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Effect keeps in mind, over all attempts at a creation, whether one of them may have
// made something: a later refusal does not undo what an earlier attempt has done. The
// zero value is for one creation that has not begun.
type Effect struct{ possible atomic.Bool }

// Do sends a request and takes down what it may have done. It may have had its effect
// unless no connection was made, or the service has refused it with 3xx or 4xx. 408 and
// 409 do not count: the former may be of a proxy that has waited for long enough, and
// what is in the way with the latter may be of an attempt before.
func (e *Effect) Do(client *http.Client, req *http.Request) (*http.Response, error) {
	// The client by itself sends a request again whose connection was lost, if it has
	// a key such as Idempotency-Key, and goes where it is redirected to: the answer
	// then speaks of the last time alone.
	var sent atomic.Int32
	trace := &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }}
	resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	none := err != nil && unconnected(err) && sent.Load() == 0 || err == nil && refused(resp.StatusCode) && sent.Load() <= 1
	if !none {
		e.Possible()
	}
	return resp, err
}

// Possible takes down that something may have been made, for services that are not
// called through Do.
func (e *Effect) Possible() { e.possible.Store(true) }

// None reports whether nothing can have been made so far.
func (e *Effect) None() bool { return !e.possible.Load() }

// Error completes the error of a Create that failed, for the broker: an *sdk.Error gets
// NoEffect where nothing can have been made. Where something can, a code that would deny
// it (SB008, say) becomes SB009, after which the broker looks what there is. What is no
// *sdk.Error stays as it is; nil gives nil.
func (e *Effect) Error(err error) error {
	coded, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return err
	}
	told := *coded
	told.NoEffect = e.None()
	if !told.NoEffect && !told.Code.LeavesOpen() {
		told.Code = sdk.CodeUnavailable
	}
	return &told
}

// refused says that a status is that of a request which has done nothing.
func refused(status int) bool {
	return status >= 300 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusConflict
}

// unconnected says that there was not even a connection.
func unconnected(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && (failed.Op == "dial" || failed.Op == "proxyconnect")
}
