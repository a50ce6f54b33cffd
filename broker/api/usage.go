package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
)

// Quotas count requests and say what a tenant has used; quota.Keeper is it.
type Quotas interface {
	// Request counts one. limit is 0 when there is none; the error is SB008.
	Request(tenant string) (remaining, limit float64, err error)
	Usage(tenant string) quota.Usage
}

// noQuotas are the quotas of a server without any.
type noQuotas struct{}

func (noQuotas) Request(string) (remaining, limit float64, err error) { return 0, 0, nil }
func (noQuotas) Usage(tenant string) quota.Usage                      { return quota.Usage{Tenant: tenant} }

// QuotaRefusal says which limit stands in the way.
type QuotaRefusal struct {
	_     struct{} `additionalProperties:"true"`
	Limit string   `json:"limit" doc:"As the operator's configuration names it; provider if the provider has no room." example:"max_concurrent"`
	Value float64  `json:"value,omitempty" doc:"Of the limit, in the unit of its name."`
	Used  float64  `json:"used" doc:"How much of it is taken now, with what is reserved."`
}

// Usage is what a tenant has used and may use.
type Usage struct {
	_       struct{}    `additionalProperties:"true"`
	Tenant  string      `json:"tenant"`
	Limits  []UsageLine `json:"limits" nullable:"false" doc:"All that is counted, limited or not, and the limits of each instance."`
	Waiting int         `json:"waiting" doc:"Requests that wait for their turn."`
}

// UsageLine is what a tenant has used of one limit.
type UsageLine struct {
	_        struct{}   `additionalProperties:"true"`
	Name     string     `json:"name" doc:"As the operator's configuration names it. Limits may be added." example:"executions_per_day"`
	Used     *float64   `json:"used,omitempty" doc:"With what is reserved for what is in progress. Absent for limits of each instance."`
	Limit    *float64   `json:"limit,omitempty" doc:"Absent when there is none."`
	ResetsAt *time.Time `json:"resets_at,omitempty" doc:"When used begins anew; absent where it does not."`
}

func (s *Server) usageRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/api/v1/usage", id: "usage", tag: tagUsage,
		summary: "What you have used and may use",
		details: "Days and months are those of UTC. What is in progress counts as what was reserved for it: an execution with its whole timeout, an instance that costs money with the next minute of its life.",
		success: []int{http.StatusOK},
	}, s.usage)
}

func (s *Server) usage(_ context.Context, c call[none]) (int, Usage, error) {
	used := s.quotas.Usage(c.tenant.Name)
	answer := Usage{Tenant: used.Tenant, Limits: []UsageLine{}, Waiting: used.Waiting}
	for _, line := range used.Lines {
		one := UsageLine{Name: string(line.Limit)}
		if line.Limit != quota.MaxMemoryMB && line.Limit != quota.MaxCPUs {
			one.Used = &line.Used
		}
		if line.Max > 0 {
			one.Limit = &line.Max
		}
		if !line.ResetsAt.IsZero() {
			one.ResetsAt = &line.ResetsAt
		}
		answer.Limits = append(answer.Limits, one)
	}
	return http.StatusOK, answer, nil
}

// countRequest counts a request of a tenant, and says in the answer's headers how
// many more may come, as draft-ietf-httpapi-ratelimit-headers has it.
func (s *Server) countRequest(c *fiber.Ctx, tenant string) error {
	remaining, limit, err := s.quotas.Request(tenant)
	if limit > 0 {
		burst := max(1, math.Ceil(limit))
		c.Set("RateLimit-Policy", fmt.Sprintf(`"requests";q=%g;w=%g`, burst, max(1, math.Ceil(burst/limit))))
		c.Set("RateLimit", fmt.Sprintf(`"requests";r=%g;t=%g`, math.Floor(remaining), math.Ceil((burst-remaining)/limit)))
	}
	return err
}

// waitOf turns wait_ms of a request into a duration. What is too long stays the
// longest there is, for the service to refuse.
func waitOf(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// refusalOf is what a problem says of a quota.
func refusalOf(refusal *quota.Refusal) *QuotaRefusal {
	return &QuotaRefusal{Limit: string(refusal.Limit), Value: refusal.Max, Used: refusal.Used}
}
