package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (s *Server) healthz(context.Context, call[none]) (int, Health, error) {
	return http.StatusOK, Health{Status: "ok"}, nil
}

// readyz looks at what this broker needs to serve, and not at what it would rather
// serve with: a load balancer that took it out because the active provider is down would
// undo fail-over.
func (s *Server) readyz(context.Context, call[none]) (int, Health, error) {
	if s.instances.Draining() {
		return 0, Health{}, sdk.Errorf(sdk.CodeUnavailable, "The broker is shutting down.")
	}
	if s.audit != nil && s.audit() != nil {
		return 0, Health{}, sdk.Errorf(sdk.CodeUnavailable, "The audit log cannot be written, and nothing is done without it. The broker's log says why.")
	}
	providers := s.instances.DefaultProviders()
	if len(providers) == 0 {
		return 0, Health{}, sdk.Errorf(sdk.CodeUnavailable, "There is no active provider.")
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
