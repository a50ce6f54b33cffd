package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// withQuota gives the tenant acme these limits, at a time that does not pass.
func withQuota(limits quota.Limits) func(*api.Options, *fixture) {
	return func(opts *api.Options, f *fixture) {
		keeper, err := quota.NewKeeper(quota.Options{
			Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": limits}},
			Now:   func() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) },
		})
		assert.NilError(f.t, err)
		f.t.Cleanup(keeper.Close)
		bounds := instancetest.Limits()
		bounds.MaxWait = time.Minute
		f.service.Shutdown(f.t.Context()) // it is replaced before it is used
		f.service = instance.NewService(instance.Options{
			Catalog: instancetest.Catalog{f.provider, f.second}, Limits: bounds, Logger: hclog.NewNullLogger(), Quotas: keeper,
		})
		opts.Instances, opts.Quotas = f.service, keeper
	}
}

const hello = `{"code":"1","language":"python"`

func TestARefusalNamesTheLimit(t *testing.T) {
	f := start(t, withQuota(quota.Limits{Instances: 1, ExecutionsPerDay: 1}))
	f.do(http.MethodPost, "/api/v1/instances", `{}`).wants(http.StatusCreated)
	refused := f.do(http.MethodPost, "/api/v1/instances", `{}`)
	p := refused.problem(http.StatusTooManyRequests, "SB008")
	assert.DeepEqual(t, p.Quota, &client.QuotaRefusal{Limit: "max_instances", Value: 1, Used: 1})
	assert.Equal(t, p.Detail, "the quota max_instances = 1 does not allow more: 1 in use")
	assert.Equal(t, refused.Header.Get("Retry-After"), "1")
	f.do(http.MethodPost, "/api/v1/execute", hello+`,"wait_ms":60001}`).problem(http.StatusUnprocessableEntity, "SB010")
	f.do(http.MethodPost, "/api/v1/execute", hello+`,"wait_ms":9223372036854775807}`).problem(http.StatusUnprocessableEntity, "SB010")
	f.do(http.MethodPost, "/api/v1/execute", hello+`,"wait_ms":-1}`).problem(http.StatusUnprocessableEntity, "SB010")
	f.do(http.MethodPost, "/api/v1/execute", hello+`,"wait_ms":20}`).problem(http.StatusTooManyRequests, "SB008")
	f.do(http.MethodPost, "/api/v1/execute", hello+`,"wait_ms":20}`, "Authorization: Bearer umbrella-token").wants(http.StatusOK)
}

func TestRequestsPerSecondAreToldInHeaders(t *testing.T) {
	f := start(t, withQuota(quota.Limits{RequestsPerSecond: 2}))
	first := f.do(http.MethodGet, "/api/v1/usage", "").wants(http.StatusOK)
	assert.Equal(t, first.Header.Get("RateLimit-Policy"), `"requests";q=2;w=1`)
	assert.Equal(t, first.Header.Get("RateLimit"), `"requests";r=1;t=1`)
	f.do(http.MethodGet, "/api/v1/providers", "").wants(http.StatusOK)
	refused := f.do(http.MethodGet, "/api/v1/instances", "")
	assert.Equal(t, refused.problem(http.StatusTooManyRequests, "SB008").Quota.Limit, "requests_per_second")
	assert.Equal(t, refused.Header.Get("Retry-After"), "1")
	assert.Equal(t, refused.Header.Get("RateLimit"), `"requests";r=0;t=1`)
	other := f.do(http.MethodGet, "/api/v1/providers", "", "Authorization: Bearer umbrella-token").wants(http.StatusOK)
	assert.Equal(t, other.Header.Get("RateLimit"), "")
}

func TestUsage(t *testing.T) {
	f := start(t, withQuota(quota.Limits{Instances: 3, ExecutionsPerDay: 10, Size: quota.Size{MemoryMB: 512}}))
	f.do(http.MethodPost, "/api/v1/instances", `{}`).wants(http.StatusCreated)
	f.do(http.MethodPost, "/api/v1/execute", hello+`}`).wants(http.StatusOK)
	var usage struct {
		Tenant  string
		Waiting int
		Limits  []struct {
			Name     string
			Used     *float64
			Limit    *float64
			ResetsAt *time.Time `json:"resets_at"`
		}
	}
	f.do(http.MethodGet, "/api/v1/usage", "").wants(http.StatusOK).decode(&usage)
	assert.Equal(t, usage.Tenant, "acme")
	seen := map[string]bool{}
	for _, line := range usage.Limits {
		seen[line.Name] = true
		switch line.Name {
		case "executions_per_day":
			assert.Equal(t, *line.Used, 1.0)
			assert.Equal(t, *line.Limit, 10.0)
			assert.Equal(t, *line.ResetsAt, time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC))
		case "max_memory_mb":
			assert.Assert(t, line.Used == nil && *line.Limit == 512)
		case "max_concurrent":
			assert.Assert(t, *line.Used == 0 && line.Limit == nil && line.ResetsAt == nil)
		}
	}
	assert.Equal(t, len(seen), 14)
}

func TestAnAdministratorSeesTheUsageOfAllTenants(t *testing.T) {
	f := start(t, withAdmin, withQuota(quota.Limits{Instances: 3, ExecutionsPerDay: 10}))
	f.do(http.MethodPost, "/api/v1/instances", `{}`, umbrellaToken).wants(http.StatusCreated)
	f.do(http.MethodPost, "/api/v1/execute", hello+`}`).wants(http.StatusOK)
	var own []string
	for _, token := range []string{"Authorization: Bearer acme-token", umbrellaToken} {
		own = append(own, f.do(http.MethodGet, "/api/v1/usage", "", token).wants(http.StatusOK).text)
	}
	assert.Equal(t, f.asAdmin(http.MethodGet, "/usage", "").wants(http.StatusOK).text, `{"data":[`+strings.Join(own, ",")+"]}")
	f.do(http.MethodGet, "/api/admin/sandbox/usage", "").problem(http.StatusForbidden, "SB012")

	without := start(t, withAdmin)
	assert.Equal(t, without.asAdmin(http.MethodGet, "/usage", "").wants(http.StatusOK).text, `{"data":[]}`)
}
