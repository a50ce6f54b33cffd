package retry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// lost stands for a connection that breaks when the request has been read.
const lost = 0

// answering is a service that gives these answers, and then the last for ever. It
// counts the requests.
func answering(t *testing.T, answers ...int) (endpoint string, requests func() int) {
	t.Helper()
	asked := make(chan int, 1)
	asked <- 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := <-asked
		asked <- n + 1
		if status := answers[min(n, len(answers)-1)]; status != lost {
			w.WriteHeader(status)
			return
		}
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() int {
		n := <-asked
		asked <- n
		return n
	}
}

func TestOneAttemptThatMayHaveHadAnEffectIsEnough(t *testing.T) {
	for name, c := range map[string]struct {
		answers []int
		none    bool
	}{
		"it is made":                           {[]int{201}, false},
		"it is refused":                        {[]int{403}, true},
		"it is led elsewhere":                  {[]int{304}, true},
		"there is no room":                     {[]int{429}, true},
		"there is room later":                  {[]int{429, 403}, true},
		"a proxy has waited for long enough":   {[]int{408}, false},
		"there is one of that name":            {[]int{409}, false},
		"the service is in trouble":            {[]int{500}, false},
		"a proxy is in trouble":                {[]int{502, 403}, false},
		"the answer is lost":                   {[]int{lost}, false},
		"the answer is lost, the next refuses": {[]int{lost, 403}, false},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint, requests := answering(t, c.answers...)
			var effect retry.Effect
			assert.Assert(t, effect.None())
			resp, err := retry.HTTP(t.Context(), retry.Policy{Attempts: 2, Min: time.Millisecond}, retry.Always, func(ctx context.Context) (*http.Response, error) {
				req, err := http.NewRequestWithContext(ctx, http.MethodPut, endpoint, nil)
				assert.NilError(t, err)
				return effect.Do(http.DefaultClient, req)
			})
			if last := c.answers[len(c.answers)-1]; last == lost {
				assert.Check(t, err != nil)
			} else {
				assert.NilError(t, err)
				assert.Equal(t, resp.StatusCode, last)
				assert.NilError(t, resp.Body.Close())
			}
			assert.Check(t, requests() >= len(c.answers))
			assert.Equal(t, effect.None(), c.none)
		})
	}
}

func TestAServiceThatIsNotReachedHasDoneNothing(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	var effect retry.Effect
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, gone.URL, nil)
	assert.NilError(t, err)
	_, err = effect.Do(&http.Client{Transport: &http.Transport{}}, req) //nolint:bodyclose // there is none
	assert.Check(t, err != nil)
	assert.Assert(t, effect.None(), "%v", err)
}

func TestARequestThatTheClientSendsAgainByItselfMayHaveHadAnEffect(t *testing.T) {
	endpoint, requests := answering(t, 200, lost, 403)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	send := func(effect *retry.Effect) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, endpoint, nil)
		assert.NilError(t, err)
		req.Header.Set("Idempotency-Key", "box-1")
		resp, err := effect.Do(client, req)
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		return resp.StatusCode
	}
	assert.Equal(t, send(&retry.Effect{}), 200) // only a connection that was used is made anew
	var effect retry.Effect
	assert.Equal(t, send(&effect), 403)
	assert.Equal(t, requests(), 3)
	assert.Assert(t, !effect.None())
}

func TestAnErrorSaysWhetherSomethingWasMade(t *testing.T) {
	refusals := []sdk.Code{
		sdk.CodeNotInitialized, sdk.CodeInvalidConfig, sdk.CodeQuotaExceeded, sdk.CodeInvalidRequest, sdk.CodeNotAuthenticated,
		sdk.CodeNotAllowed, sdk.CodeNotSupported,
	}
	for _, info := range sdk.CodeTable() {
		t.Run(string(info.Code), func(t *testing.T) {
			cause := errors.New("why")
			failed := sdk.Errorf(info.Code, "make a box: %w", cause)
			failed.RetryAfter = time.Minute
			var effect retry.Effect

			var got *sdk.Error
			assert.Assert(t, errors.As(effect.Error(failed), &got))
			assert.Equal(t, got.Code, info.Code)
			assert.Assert(t, got.NoEffect)

			effect.Possible()
			assert.Assert(t, errors.As(effect.Error(failed), &got))
			want := info.Code
			if slices.Contains(refusals, want) {
				want = sdk.CodeUnavailable
			}
			assert.Equal(t, got.Code, want, "no code that says that there is nothing")
			assert.Assert(t, !got.NoEffect)
			assert.Equal(t, got.Message, failed.Message)
			assert.Equal(t, got.RetryAfter, time.Minute)
			assert.ErrorIs(t, got, cause)
			assert.Equal(t, failed.Code, info.Code, "the error that was given is as it was")
			assert.Assert(t, !failed.NoEffect)
		})
	}
	var effect retry.Effect
	assert.NilError(t, effect.Error(nil))
	assert.Equal(t, effect.Error(context.Canceled), context.Canceled)
}

// An attempt that was refused does not take back what one before may have made.
func ExampleEffect() {
	answers := []int{http.StatusBadGateway, http.StatusTooManyRequests}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(answers[0])
		answers = answers[1:]
	}))
	defer server.Close()
	var effect retry.Effect
	for range 2 {
		req, _ := http.NewRequest(http.MethodPut, server.URL+"/sandboxes/box-1", nil)
		if resp, err := effect.Do(http.DefaultClient, req); err == nil {
			resp.Body.Close()
		}
		fmt.Println(effect.None(), effect.Error(sdk.Errorf(sdk.CodeQuotaExceeded, "full")))
	}
	// Output:
	// false SB009: full
	// false SB009: full
}
