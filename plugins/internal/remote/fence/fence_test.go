package fence_test

import (
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/fence"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// counting is a service that counts what it is asked.
type counting struct{ asked int }

func (c *counting) RoundTrip(*http.Request) (*http.Response, error) {
	c.asked++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestWhoLostTheLeaseChangesNothing(t *testing.T) {
	over, held := &sdk.Lease{}, &sdk.Lease{}
	over.Extend(1, 0)
	held.Extend(1, 1<<40)
	for name, c := range map[string]struct {
		method string
		lease  *sdk.Lease
		asked  int
	}{
		"a look":                        {http.MethodGet, over, 1},
		"an effect":                     {http.MethodDelete, over, 0},
		"an effect with a body":         {http.MethodPost, over, 0},
		"an effect within the lease":    {http.MethodDelete, held, 1},
		"an effect of a broker alone":   {http.MethodPost, &sdk.Lease{}, 1},
		"what the provider does itself": {http.MethodPost, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			service := &counting{}
			ctx := t.Context()
			if c.lease != nil {
				ctx = sdk.WithLease(ctx, c.lease)
			}
			req, err := http.NewRequestWithContext(ctx, c.method, "http://service/", strings.NewReader("x"))
			assert.NilError(t, err)
			resp, err := fence.Transport{Next: service}.RoundTrip(req)
			assert.Equal(t, service.asked, c.asked)
			assert.Equal(t, fence.Refused(err), c.asked == 0)
			if c.asked == 0 {
				assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
				return
			}
			assert.NilError(t, err)
			assert.NilError(t, resp.Body.Close())
		})
	}
}
