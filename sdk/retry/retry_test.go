package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

var (
	errBusy    = sdk.Errorf(sdk.CodeUnavailable, "busy")
	errWrong   = sdk.Errorf(sdk.CodeInvalidRequest, "wrong")
	errForeign = errors.New("no code")
)

func after(d time.Duration) error {
	full := sdk.Errorf(sdk.CodeQuotaExceeded, "full")
	full.RetryAfter = d
	return fmt.Errorf("create: %w", full)
}

func TestWhatMaySucceedLaterIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		policy   retry.Policy
		answers  []error // what each attempt says; the last for all further ones
		timeout  time.Duration
		attempts int
		min, max time.Duration // how long all took
		err      error
	}{
		"a success is not repeated":               {answers: []error{nil}, attempts: 1},
		"an error for good is not repeated":       {answers: []error{errWrong}, attempts: 1, err: errWrong},
		"an error without a code is not repeated": {answers: []error{errForeign}, attempts: 1, err: errForeign},
		"the end of a context is not repeated":    {answers: []error{context.Canceled}, attempts: 1, err: context.Canceled},
		"pauses grow":                             {answers: []error{errBusy, errBusy, nil}, attempts: 3, min: 300 * time.Millisecond, max: 900*time.Millisecond + 2},
		"pauses have a limit":                     {policy: retry.Policy{Attempts: 100, Min: time.Second, Max: time.Second}, answers: []error{errBusy}, attempts: 100, min: 99 * time.Second / 2, max: 150 * time.Second, err: errBusy},
		"attempts have a limit":                   {policy: retry.Policy{Attempts: 2}, answers: []error{errBusy}, attempts: 2, min: 100 * time.Millisecond, max: 300*time.Millisecond + 1, err: errBusy},
		"an error that was marked":                {answers: []error{retry.Again(errForeign, 0), nil}, attempts: 2, min: 100 * time.Millisecond, max: 300*time.Millisecond + 1},
		"a mark stays inside":                     {policy: retry.Policy{Attempts: 1}, answers: []error{retry.Again(errForeign, 0)}, attempts: 1, err: errForeign},
		"the service says when":                   {answers: []error{after(7 * time.Second), nil}, attempts: 2, min: 7 * time.Second, max: 7*time.Second + 200*time.Millisecond},
		"the service says much later":             {answers: []error{after(time.Minute)}, attempts: 1, err: after(time.Minute)},
		"the service says after the deadline":     {answers: []error{after(7 * time.Second)}, timeout: 5 * time.Second, attempts: 1, err: after(7 * time.Second)},
		"no pause goes beyond the deadline":       {policy: retry.Policy{Attempts: 100, Min: time.Second, Max: time.Second}, answers: []error{errBusy}, timeout: 100 * time.Millisecond, attempts: 1, err: errBusy},
		"errors that differ":                      {answers: []error{errBusy, errWrong}, attempts: 2, min: 100 * time.Millisecond, max: 300*time.Millisecond + 1, err: errWrong},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				began, attempts := time.Now(), 0
				value, err := retry.Do(ctx, c.policy, func(context.Context) (int, error) {
					err := c.answers[min(attempts, len(c.answers)-1)]
					attempts++
					return attempts, err
				})
				assert.Equal(t, attempts, c.attempts)
				assert.Equal(t, value, c.attempts)
				if took := time.Since(began); took < c.min || took > c.max {
					t.Errorf("took %v, not %v to %v", took, c.min, c.max)
				}
				if c.err == nil {
					assert.NilError(t, err)
					return
				}
				assert.Equal(t, err.Error(), c.err.Error())
				assert.Equal(t, fmt.Sprintf("%T", err), fmt.Sprintf("%T", c.err), "nothing is around it")
			})
		})
	}
}

func TestACancellationEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		began := time.Now()
		_, err := retry.Do(ctx, retry.Policy{}, func(context.Context) (int, error) { return 0, after(20 * time.Second) })
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Since(began), 3*time.Second)
	})
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[string]time.Duration{
			"":                              0,
			"0":                             0,
			" 5 ":                           5 * time.Second,
			"-5":                            0,
			"1.5":                           0,
			"99999999999999999999":          0,
			"soon":                          0,
			"Fri, 31 Dec 1999 23:59:59 GMT": 0,
			time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat): 90 * time.Second,
		} {
			assert.Equal(t, retry.After(http.Header{"Retry-After": {value}}), want, value)
		}
	})
}

// body tells whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

func TestRequestsAreRepeatedAsTheCallerAllows(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	lost := &net.OpError{Op: "read", Err: errors.New("connection reset")}
	for name, c := range map[string]struct {
		status int
		after  string
		err    error
		again  map[retry.Repeat]bool
	}{
		"200":                       {200, "", nil, nil},
		"400":                       {400, "", nil, nil},
		"404":                       {404, "", nil, nil},
		"408":                       {408, "", nil, map[retry.Repeat]bool{retry.Always: true}},
		"429":                       {429, "1", nil, map[retry.Repeat]bool{retry.Always: true, retry.IfRefused: true}},
		"429 without a time":        {429, "", nil, map[retry.Repeat]bool{retry.Always: true, retry.IfRefused: true}},
		"429 for much later":        {429, "3600", nil, nil},
		"500":                       {500, "", nil, map[retry.Repeat]bool{retry.Always: true}},
		"501":                       {501, "", nil, nil},
		"502":                       {502, "", nil, map[retry.Repeat]bool{retry.Always: true}},
		"503":                       {503, "", nil, map[retry.Repeat]bool{retry.Always: true}},
		"503 with a time":           {503, "1", nil, map[retry.Repeat]bool{retry.Always: true, retry.IfRefused: true}},
		"504":                       {504, "", nil, map[retry.Repeat]bool{retry.Always: true}},
		"no connection":             {0, "", refused, map[retry.Repeat]bool{retry.Always: true, retry.IfRefused: true}},
		"a connection that is lost": {0, "", lost, map[retry.Repeat]bool{retry.Always: true}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, repeat := range []retry.Repeat{retry.Never, retry.IfRefused, retry.Always} {
				synctest.Test(t, func(t *testing.T) {
					first := &body{Reader: strings.NewReader("why")}
					attempts := 0
					resp, err := retry.HTTP(t.Context(), retry.Policy{}, repeat, func(context.Context) (*http.Response, error) {
						attempts++
						switch {
						case attempts > 1:
							return &http.Response{StatusCode: 201, Body: http.NoBody}, nil
						case c.err != nil:
							return nil, c.err
						}
						resp := &http.Response{StatusCode: c.status, Header: http.Header{}, Body: first}
						if c.after != "" {
							resp.Header.Set("Retry-After", c.after)
						}
						return resp, nil
					})
					if c.again[repeat] {
						assert.NilError(t, err)
						assert.Equal(t, attempts, 2)
						assert.Equal(t, resp.StatusCode, 201)
						assert.NilError(t, resp.Body.Close())
						assert.Equal(t, first.closed, c.err == nil)
						return
					}
					assert.Equal(t, attempts, 1)
					assert.Equal(t, err, c.err)
					if c.err == nil {
						text, err := io.ReadAll(resp.Body)
						assert.NilError(t, err)
						assert.Equal(t, string(text), "why", "the last answer can be read")
						assert.Assert(t, !first.closed)
						assert.NilError(t, resp.Body.Close())
					}
				})
			}
		})
	}
}

func TestTheLastAnswerIsReturnedWhenNoneWasGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		resp, err := retry.HTTP(t.Context(), retry.Policy{Attempts: 3}, retry.Always, func(context.Context) (*http.Response, error) {
			attempts++
			return &http.Response{StatusCode: 500 + attempts - 1, Body: io.NopCloser(strings.NewReader(fmt.Sprint(attempts)))}, nil
		})
		assert.NilError(t, err)
		assert.Equal(t, attempts, 2, "501 is for good")
		assert.Equal(t, resp.StatusCode, 501)
		resp.Body.Close()
	})
}
