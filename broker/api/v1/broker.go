package v1

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// brokerRoutes are about the broker itself, and what a tenant has used of it.
type brokerRoutes struct{ Options }

func (h brokerRoutes) register(a *rest.API) {
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: "/api/v1/usage", ID: "usage", Tag: tagUsage,
		Summary: "What you have used and may use",
		Details: "Days and months are those of UTC. What is in progress counts as what was reserved for it: an execution with its whole timeout, an instance that costs money with the next minute of its life.",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, h.usage)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: "/healthz", ID: "healthz", Tag: tagBroker, Public: true, Quiet: true,
		Summary: "Whether the process is alive",
		Success: []int{http.StatusOK},
	}, h.healthz)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: "/readyz", ID: "readyz", Tag: tagBroker, Public: true, Quiet: true,
		Summary: "Whether the broker takes work",
		Details: "It does as long as the active provider or one of its fallback is ready, the audit log can be written, no shutdown has begun and no administrator has it drain.",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, h.readyz)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: "/openapi.json", ID: "openapi", Tag: tagBroker, Public: true,
		Summary: "This document",
		Success: []int{http.StatusOK},
	}, func(context.Context, rest.Call[rest.None]) (int, rest.Document, error) {
		document, err := a.Document()
		return http.StatusOK, document, err
	})
}

func (h brokerRoutes) healthz(context.Context, rest.Call[rest.None]) (int, client.Health, error) {
	return http.StatusOK, client.Health{Status: "ok"}, nil
}

// readyz looks at what this broker needs to serve, and not at what it would rather
// serve with: a load balancer that took it out because the active provider is down would
// undo fail-over. Just after the start, while that one gets its grace, nothing would be
// served at once.
func (h brokerRoutes) readyz(context.Context, rest.Call[rest.None]) (int, client.Health, error) {
	if h.Instances.Draining() {
		return 0, client.Health{}, sdk.Errorf(sdk.CodeUnavailable, "The broker is shutting down.")
	}
	if h.Drain != nil && h.Drain.Drained() {
		return 0, client.Health{}, sdk.Errorf(sdk.CodeUnavailable, "The broker is draining: an administrator has taken it out, and new sessions go to others. What it has goes on.")
	}
	if h.Audit != nil && h.Audit() != nil {
		return 0, client.Health{}, sdk.Errorf(sdk.CodeUnavailable, "The audit log cannot be written, and nothing is done without it. The broker's log says why.")
	}
	if h.State != nil {
		if err := h.State(); err != nil {
			return 0, client.Health{}, err
		}
	}
	providers := h.Instances.DefaultProviders()
	if len(providers) == 0 {
		return 0, client.Health{}, sdk.Errorf(sdk.CodeUnavailable, "There is no active provider.")
	}
	if awaited, ok := h.Instances.Awaited(); ok {
		return 0, client.Health{}, stillAwaited(awaited)
	}
	health := client.Health{Status: "ready"}
	for _, p := range providers {
		if !p.Status.Ready {
			health.NotReady = append(health.NotReady, client.NotReady{Provider: p.Label, State: p.Status.State, Reason: p.Status.Reason})
		}
	}
	if len(health.NotReady) == len(providers) {
		return 0, client.Health{}, nobodyReady(health.NotReady)
	}
	return http.StatusOK, health, nil
}

// stillAwaited is the refusal after the start of the broker, as long as requests wait for
// a provider although its fallback may be ready.
func stillAwaited(a instance.Awaited) error {
	reason := a.Status.State
	if a.Status.Reason != "" && a.Status.Reason != reason {
		reason += ": " + a.Status.Reason
	}
	refusal := sdk.Errorf(sdk.CodeUnavailable, "The broker has just started, and provider %s is %s. New work waits for it until %s, and then goes to the next one.",
		a.Label, reason, a.Until.UTC().Format(time.RFC3339))
	refusal.RetryAfter = time.Second
	return &instance.Fault{Provider: a.Label, Err: refusal}
}

// nobodyReady is the refusal when none of them takes work.
func nobodyReady(them []client.NotReady) error {
	fault := &instance.Fault{Provider: them[0].Provider}
	var reasons []string
	for i, p := range them {
		reason := p.State
		if p.Reason != "" {
			reason += ": " + p.Reason
		}
		reasons = append(reasons, p.Provider+" is "+reason)
		if i > 0 {
			fault.Tried = append(fault.Tried, instance.Tried{Provider: p.Provider, Code: sdk.CodeUnavailable})
		}
	}
	fault.Err = sdk.Errorf(sdk.CodeUnavailable, "No provider is ready: %s", strings.Join(reasons, "; "))
	return fault
}

func (h brokerRoutes) usage(ctx context.Context, c rest.Call[rest.None]) (int, client.Usage, error) {
	used := quota.Usage{Tenant: c.Tenant.Name}
	if h.Quotas != nil {
		var err error
		if used, err = h.Quotas.UsageEverywhere(ctx, c.Tenant.Name); err != nil {
			return 0, client.Usage{}, err
		}
	}
	return http.StatusOK, usageOf(used), nil
}

func usageOf(used quota.Usage) client.Usage {
	answer := client.Usage{Tenant: used.Tenant, Limits: []client.UsageLine{}, Waiting: used.Waiting}
	for _, line := range used.Lines {
		one := client.UsageLine{Name: string(line.Limit)}
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
	return answer
}
