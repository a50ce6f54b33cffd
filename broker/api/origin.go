package api

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/broker/origin"
)

// asked says in a context which request its work is for.
func (x *exchange) asked(ctx context.Context) context.Context {
	return origin.With(ctx, origin.Origin{Cause: origin.Request, Tenant: x.tenant, RequestID: x.requestID, Remote: x.remote})
}
