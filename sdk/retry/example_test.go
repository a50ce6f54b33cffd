package retry_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// client is the part of a provider that talks to its service.
type client struct {
	endpoint string
	secrets  *redact.Redactor
}

// create makes a sandbox under a name of our own, so that a request whose answer was
// lost can be sent again.
func (c *client) create(ctx context.Context, name string) error {
	var effect retry.Effect
	resp, err := retry.HTTP(ctx, retry.Policy{}, retry.Always, func(ctx context.Context) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.endpoint+"/sandboxes/"+name, nil)
		if err != nil {
			return nil, err
		}
		return effect.Do(http.DefaultClient, req)
	})
	if err != nil {
		return c.secrets.Error(effect.Error(sdk.Errorf(sdk.CodeConnectionFailed, "create a sandbox: %w", err)))
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests {
		full := sdk.Errorf(sdk.CodeQuotaExceeded, "the account has no room for another sandbox")
		full.RetryAfter = retry.After(resp.Header)
		return effect.Error(full)
	}
	if resp.StatusCode >= 300 {
		return effect.Error(sdk.Errorf(sdk.CodeCreateFailed, "the service answered %s", resp.Status))
	}
	return nil
}

// A service that is full at first.
func ExampleHTTP() {
	answers := []int{http.StatusServiceUnavailable, http.StatusCreated}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answers[0])
		answers = answers[1:]
	}))
	defer server.Close()
	service := &client{endpoint: server.URL}
	fmt.Println(service.create(context.Background(), "box-1"), len(answers))
	// Output: <nil> 0
}

// An error with a code that is retryable is followed by another attempt, any other one
// is not.
func ExampleDo() {
	patience := retry.Policy{Attempts: 3, Min: time.Millisecond, Max: time.Millisecond}
	for _, code := range []sdk.Code{sdk.CodeUnavailable, sdk.CodeInvalidConfig} {
		attempts := 0
		_, err := retry.Do(context.Background(), patience, func(context.Context) (string, error) {
			attempts++
			return "", sdk.Errorf(code, "attempt %d", attempts)
		})
		fmt.Println(attempts, err)
	}
	// Output:
	// 3 SB009: attempt 3
	// 1 SB002: attempt 1
}
