package v1

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Drain has the broker leave new sessions to others.
type Drain interface {
	// Drained reports whether an administrator has had it do so.
	Drained() bool
	SetDrained(ctx context.Context, drained bool) error
}

// drainRoutes are for administrators.
type drainRoutes struct {
	drain     Drain // nil where there are none
	instances Instances
}

func (h drainRoutes) register(a *rest.API) {
	const path = pathAdmin + "/drain"
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: path, ID: "adminGetDrain", Tag: tagAdmin, Admin: true,
		Summary: "Whether the broker drains",
		Details: "It can be stopped without ending anything when it drains and has no instances any more.",
		Success: []int{http.StatusOK},
	}, func(context.Context, rest.Call[rest.None]) (int, client.AdminDrainAnswer, error) {
		return http.StatusOK, h.answer(), nil
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodPut, Path: path, ID: "adminDrain", Tag: tagAdmin, Admin: true,
		Summary: "Take the broker out, or back",
		Details: "One that drains passes new sessions on to other brokers on its database, as long as one of them has room; what it has goes on, and is reached through all of them. " +
			"GET /readyz answers 503, so that a load balancer sends new requests elsewhere. With a state in a database it goes on draining after a restart. " +
			"It is about the broker that answers, and no other: ask each at its own address.",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, func(ctx context.Context, c rest.Call[client.AdminDrainRequest]) (int, client.AdminDrainAnswer, error) {
		if err := h.drain.SetDrained(ctx, c.Body.Draining); err != nil {
			return 0, client.AdminDrainAnswer{}, err
		}
		return http.StatusOK, h.answer(), nil
	})
}

func (h drainRoutes) answer() client.AdminDrainAnswer {
	left := 0
	for _, n := range h.instances.CountByState() {
		left += n
	}
	return client.AdminDrainAnswer{Data: client.AdminDrain{Draining: h.drain.Drained(), Instances: left}}
}
