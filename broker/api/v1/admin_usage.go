package v1

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// adminUsageRoutes tell administrators what tenants have used.
type adminUsageRoutes struct{ quotas Quotas }

func (h adminUsageRoutes) register(a *rest.API) {
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: pathAdmin + "/usage", ID: "adminListUsage", Tag: tagAdmin, Admin: true,
		Summary: "What all tenants have used and may use",
		Details: "Of each what it is told itself. Those of the configuration, and others for whom something is counted.",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, func(ctx context.Context, _ rest.Call[rest.None]) (int, client.AdminUsage, error) {
		answer := client.AdminUsage{Data: []client.Usage{}}
		if h.quotas != nil {
			all, err := h.quotas.AllEverywhere(ctx)
			if answer.Silent, err = silent(err); err != nil {
				return 0, client.AdminUsage{}, err
			}
			for _, used := range all {
				answer.Data = append(answer.Data, usageOf(used))
			}
		}
		return http.StatusOK, answer, nil
	})
}
