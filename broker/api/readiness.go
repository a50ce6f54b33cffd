package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (s *Server) healthz(context.Context, call[none]) (int, Health, error) {
	return http.StatusOK, Health{Status: "ok"}, nil
}

// readyz looks at what this broker needs to serve, and not at what it would rather
// serve with: a load balancer that took it out because the active provider is down would
// undo fail-over. Just after the start, while that one gets its grace, nothing would be
// served at once.
func (s *Server) readyz(context.Context, call[none]) (int, Health, error) {
	if s.instances.Draining() {
		return 0, Health{}, sdk.Errorf(sdk.CodeUnavailable, "The broker is shutting down.")
	}
	if s.audit != nil && s.audit() != nil {
		return 0, Health{}, sdk.Errorf(sdk.CodeUnavailable, "The audit log cannot be written, and nothing is done without it. The broker's log says why.")
	}
	if s.state != nil {
		if err := s.state(); err != nil {
			return 0, Health{}, err
		}
	}
	providers := s.instances.DefaultProviders()
	if len(providers) == 0 {
		return 0, Health{}, sdk.Errorf(sdk.CodeUnavailable, "There is no active provider.")
	}
	if awaited, ok := s.instances.Awaited(); ok {
		return 0, Health{}, stillAwaited(awaited)
	}
	health := Health{Status: "ready"}
	for _, p := range providers {
		if !p.Status.Ready {
			health.NotReady = append(health.NotReady, NotReady{Provider: p.Label, State: p.Status.State, Reason: p.Status.Reason})
		}
	}
	if len(health.NotReady) == len(providers) {
		return 0, Health{}, nobodyReady(health.NotReady)
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
func nobodyReady(them []NotReady) error {
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
