package api

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/broker/origin"
)

// asked says in a context which request its work is for.
func (x *exchange) asked(ctx context.Context) context.Context {
	cause := origin.Request
	if x.admin {
		cause = origin.Admin
	}
	return origin.With(ctx, origin.Origin{Cause: cause, Tenant: x.tenant, RequestID: x.requestID, Remote: x.remote})
}
