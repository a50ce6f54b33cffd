package client

import "context"

// AdminUsage is what all tenants have used.
type AdminUsage struct {
	_    struct{} `additionalProperties:"true"`
	Data []Usage  `json:"data" nullable:"false" doc:"In the order of their names."`
	// Silent are the brokers that have not answered.
	Silent []string `json:"silent,omitempty" doc:"Where there are several brokers: those that did not answer in time, whose part is missing."`
}

// AdminInstanceMetrics is what an instance uses, of whichever tenant it is.
type AdminInstanceMetrics struct {
	_    struct{}        `additionalProperties:"true"`
	Data InstanceMetrics `json:"data"`
}

// Usage says what all tenants have used and may use.
func (a Admin) Usage(ctx context.Context) (AdminUsage, error) {
	return ask[AdminUsage](ctx, a.client, Request{Method: get, Path: adminPath("usage")})
}

// InstanceMetrics measures an instance of any tenant, which is no use of it.
func (a Admin) InstanceMetrics(ctx context.Context, id string) (AdminInstanceMetrics, error) {
	return ask[AdminInstanceMetrics](ctx, a.client, Request{Method: get, Path: adminPath("instances", id, "metrics")})
}
