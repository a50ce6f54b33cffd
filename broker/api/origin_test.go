package api_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestWhatARequestCausesCarriesItsOrigin(t *testing.T) {
	for name, headers := range map[string][]string{
		"a plain answer": {"X-Request-Id: mine-1"},
		"a stream":       {"X-Request-Id: mine-1", "Accept: text/event-stream"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			var created, executed atomic.Pointer[origin.Origin]
			f.provider.OnCreate = func(ctx context.Context, _ sdk.CreateRequest) error {
				o := origin.Of(ctx)
				created.Store(&o)
				return nil
			}
			f.provider.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
				o := origin.Of(ctx)
				executed.Store(&o)
				return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
			}
			f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`, headers...).wants(http.StatusOK)
			for _, o := range []*origin.Origin{created.Load(), executed.Load()} {
				assert.Equal(t, o.Cause, origin.Request)
				assert.Equal(t, o.Tenant, "acme")
				assert.Equal(t, o.RequestID, "mine-1")
				assert.Check(t, strings.HasPrefix(o.Remote, "127.0.0.1:"), o.Remote)
			}
		})
	}
}

func TestABrokerWithoutAnAuditLogIsNotReady(t *testing.T) {
	var full atomic.Bool
	f := start(t, func(o *api.Options, _ *fixture) {
		o.Audit = func() error {
			if full.Load() {
				return errors.New("write /secret/path: no space left on device")
			}
			return nil
		}
	})
	f.do(http.MethodGet, "/readyz", "").wants(http.StatusOK)
	full.Store(true)
	p := f.do(http.MethodGet, "/readyz", "").problem(http.StatusServiceUnavailable, "SB009")
	assert.Check(t, cmp.Contains(p.Detail, "audit log cannot be written"))
	assert.Check(t, !strings.Contains(p.Detail, "secret"))
}
