package api

import (
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func capabilitiesOf(names []string) (list []sdk.Capability) {
	for _, name := range names {
		list = append(list, sdk.Capability(name))
	}
	return list
}

func circuitOf(s routing.Standing) AdminCircuit {
	circuit := AdminCircuit{State: string(s.Circuit), Failures: s.Failures, CreationSeconds: s.Creation.Seconds()}
	if circuit.State == "" {
		circuit.State = string(routing.Closed)
	}
	if !s.Until.IsZero() {
		circuit.Until = s.Until.UTC()
	}
	return circuit
}

// routingOf is nil for what was not routed.
func routingOf(r instance.Routing) *Routing {
	if r.Reason == "" {
		return nil
	}
	return &Routing{Reason: r.Reason, PlacedBy: r.PlacedBy, Tried: triedOf(r.Tried)}
}

func triedOf(tried []instance.Tried) (list []RoutingRefusal) {
	for _, t := range tried {
		list = append(list, RoutingRefusal{Provider: t.Provider, Code: string(t.Code)})
	}
	return list
}
