package provider

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// This test is inside the package: it counts the calls of a client that Configure makes.
func TestPausesOfTheAPIServer(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"storage is too large","reason":"TooManyRequests","code":429}`
	for name, test := range map[string]struct {
		code   int
		header string
		body   string
		calls  int64
		want   sdk.Code
		pause  time.Duration
	}{
		"a long one is told":                     {429, "30", "slow down", 1, sdk.CodeQuotaExceeded, 30 * time.Second},
		"a long one with the server's own words": {429, "30", status, 1, sdk.CodeQuotaExceeded, 30 * time.Second},
		"so is one of a server that is away":     {503, "5", "", 1, sdk.CodeUnavailable, 5 * time.Second},
		"none at all":                            {429, "", "slow down", 1, sdk.CodeQuotaExceeded, 0},
		"a date is none":                         {503, "Fri, 27 Nov 2026 12:00:00 GMT", "", 1, sdk.CodeUnavailable, 0},
		"a short one is waited for":              {429, "0", "", 3, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) == 3 {
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","items":[]}`))
					return
				}
				w.Header().Set("Retry-After", test.header)
				w.WriteHeader(test.code)
				_, _ = w.Write([]byte(test.body))
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			config.Wrap(tellPauses)
			client, err := kubernetes.NewForConfig(config)
			assert.NilError(t, err)
			_, err = client.CoreV1().Pods("ns").List(t.Context(), metav1.ListOptions{})
			assert.Equal(t, calls.Load(), test.calls)
			if test.want == "" {
				assert.NilError(t, err)
				return
			}
			err = explainAPI(t.Context(), err, sdk.CodeCreateFailed, "list")
			assert.Check(t, is.Equal(sdk.CodeOf(err), test.want), "%v", err)
			var told *sdk.Error
			assert.Assert(t, is.ErrorType(err, told))
			assert.Check(t, is.Equal(err.(*sdk.Error).RetryAfter, test.pause)) //nolint:errorlint // as it is made
			if test.body == status {
				assert.Check(t, is.ErrorContains(err, "storage is too large"))
			}
		})
	}
}
