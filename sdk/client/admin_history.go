package client

import (
	"context"
	"net/url"
	"time"
)

// AdminHistory is how the broker was lately.
type AdminHistory struct {
	_           struct{}             `additionalProperties:"true"`
	StepSeconds float64              `json:"step_seconds" doc:"The time from one point to the next."`
	From        time.Time            `json:"from" doc:"The time of the first point of each series."`
	To          time.Time            `json:"to" doc:"The time of the last point."`
	Series      []AdminHistorySeries `json:"series" nullable:"false" doc:"Kinds may be added."`
}

// AdminHistorySeries is one figure over time.
type AdminHistorySeries struct {
	_      struct{}   `additionalProperties:"true"`
	Name   string     `json:"name" doc:"requests, latency_p50, latency_p95, latency_p99, executions, instances, pool, waiting, cost, failovers." example:"requests"`
	Label  string     `json:"label" doc:"Of requests the code, ok for none; of executions and pool the provider; of instances the state; of the others empty. Never a tenant."`
	Unit   string     `json:"unit" doc:"1/s, s, unit for the operator's unit of money in the step, or empty for a number." example:"1/s"`
	Points []*float64 `json:"points" nullable:"false" doc:"The oldest first; null where nothing is known, as before the start of the broker."`
}

// History says how the broker was lately. The query may have minutes.
func (a Admin) History(ctx context.Context, query url.Values) (AdminHistory, error) {
	return ask[AdminHistory](ctx, a.client, Request{Method: get, Path: adminPath("history"), Query: query})
}
