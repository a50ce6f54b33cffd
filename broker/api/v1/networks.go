package v1

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func (h instanceRoutes) registerNetwork(a *rest.API) {
	rest.Register(a, rest.Operation{
		Method: http.MethodPut, Path: "/api/v1/instances/{id}/network", ID: "setNetwork", Tag: tagInstances,
		Summary: "Change what an instance may reach",
		Details: "Within what the operator allows. Once it is answered, nothing is sent or received by what is not allowed any more. Programs that started when there was no network do not know how to reach it.",
		Success: []int{http.StatusOK}, Codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict, sdk.CodeNotAllowed),
	}, h.setNetwork)
}

func (h instanceRoutes) setNetwork(ctx context.Context, c rest.Call[client.Network]) (int, client.Instance, error) {
	asked, err := networkOf(&c.Body)
	if err != nil {
		return 0, client.Instance{}, err
	}
	info, err := h.instances.SetNetwork(ctx, c.Tenant, c.Path["id"], *asked)
	return http.StatusOK, instanceOf(info), err
}

// networkOf is what a request asks for; nil for nothing.
func networkOf(body *client.Network) (*network.Request, error) {
	if body == nil {
		return nil, nil
	}
	if body.None && (len(body.Allow) > 0 || body.MaxConnections > 0 || body.MaxBytes > 0) {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "network", "is none, and says something of it")
	}
	asked := &network.Request{None: body.None, MaxConnections: int(body.MaxConnections), MaxBytes: body.MaxBytes}
	for _, r := range body.Allow {
		rule := sdk.NetworkRule{Host: r.Host, Methods: r.Methods, Paths: r.Paths, WebSocket: r.WebSocket, TCP: r.TCP}
		for _, port := range r.Ports {
			if port < 1 || port > 65535 {
				return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "network", "has a port that is none: 1 to 65535")
			}
			rule.Ports = append(rule.Ports, int(port))
		}
		asked.Rules = append(asked.Rules, rule)
	}
	return asked, nil
}
