package lending

import (
	"context"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// FindContext returns a context of the leased instance, SB013 if it has none of that ID.
func FindContext(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease, id string) (sdk.CodeContext, error) {
	all, err := contexts.ListContexts(ctx, lease.InstanceID)
	if err != nil {
		return sdk.CodeContext{}, err
	}
	i := slices.IndexFunc(all, func(one sdk.CodeContext) bool { return one.ID == id })
	if i < 0 {
		return sdk.CodeContext{}, sdk.Errorf(sdk.CodeNotFound, "no such context; it was never made or has been deleted")
	}
	return all[i], nil
}
