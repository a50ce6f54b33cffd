package v1

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// contextRoutes are those of the capability "contexts". Code runs in a context by
// executeInInstance.
type contextRoutes struct{ instances Instances }

func (h contextRoutes) register(a *rest.API) {
	const all, one = "/api/v1/instances/{id}/contexts", "/api/v1/instances/{id}/contexts/{context}"
	codes := append(providerCodes(), sdk.CodeNotFound)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: all, ID: "createContext", Tag: tagContexts,
		Summary: "Make a context",
		Details: "Starts an interpreter that keeps variables, imports and open files from one execution to the next, and answers when it can run code: " +
			"POST /api/v1/instances/{id}/execute with its ID as context_id. The context ends with the instance.",
		Success: []int{http.StatusCreated}, Codes: codes,
	}, h.createContext)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: all, ID: "listContexts", Tag: tagContexts,
		Summary: "List the contexts of an instance",
		Success: []int{http.StatusOK}, Codes: codes,
	}, h.listContexts)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: one, ID: "getContext", Tag: tagContexts,
		Summary: "Look at a context",
		Success: []int{http.StatusOK}, Codes: codes,
	}, h.getContext)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: one + "/restart", ID: "restartContext", Tag: tagContexts,
		Summary: "Restart a context",
		Details: "Ends what runs in it, which is answered as cancelled, and forgets its state. Its ID, language, directory and environment stay.",
		Success: []int{http.StatusNoContent}, Codes: codes,
	}, h.restartContext)
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: one, ID: "deleteContext", Tag: tagContexts,
		Summary: "Delete a context",
		Details: "Ends what runs in it, which is answered as cancelled.",
		Success: []int{http.StatusNoContent}, Codes: codes,
	}, h.deleteContext)
}

// withContexts lends the contexts of an instance. The context that use gets ends
// with ctx and when the broker stops.
func (h contextRoutes) withContexts(ctx context.Context, who tenant.Tenant, id string, use func(context.Context, sdk.Contexts, *instance.Lease) error) error {
	return lending.Lend(ctx, h.instances, who, id, sdk.CapabilityContexts, (*instance.Lease).Within, use)
}

func (h contextRoutes) createContext(ctx context.Context, c rest.Call[client.CreateContextRequest]) (int, client.Context, error) {
	var created sdk.CodeContext
	err := h.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		req := sdk.CreateContextRequest{Cwd: c.Body.Cwd, Env: c.Body.Env}
		err := lease.BoundContext(&req, c.Body.Language)
		if err == nil {
			created, err = contexts.CreateContext(ctx, req)
		}
		return err
	})
	return http.StatusCreated, contextOf(created), err
}

func (h contextRoutes) listContexts(ctx context.Context, c rest.Call[rest.None]) (int, client.ContextList, error) {
	list := client.ContextList{Contexts: []client.Context{}}
	err := h.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		all, err := contexts.ListContexts(ctx, lease.InstanceID)
		for _, one := range all {
			list.Contexts = append(list.Contexts, contextOf(one))
		}
		return err
	})
	return http.StatusOK, list, err
}

func (h contextRoutes) getContext(ctx context.Context, c rest.Call[rest.None]) (int, client.Context, error) {
	var found sdk.CodeContext
	err := h.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) (err error) {
		found, err = lending.FindContext(ctx, contexts, lease, c.Path["context"])
		return err
	})
	return http.StatusOK, contextOf(found), err
}

func (h contextRoutes) restartContext(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, h.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		return contexts.RestartContext(ctx, lease.InstanceID, c.Path["context"])
	})
}

// deleteContext answers for an unknown context as for an unknown instance, though
// for a provider that is a success.
func (h contextRoutes) deleteContext(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, h.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		found, err := lending.FindContext(ctx, contexts, lease, c.Path["context"])
		if err != nil {
			return err
		}
		return contexts.DeleteContext(ctx, lease.InstanceID, found.ID)
	})
}

func contextOf(c sdk.CodeContext) client.Context {
	return client.Context{ID: c.ID, Language: string(c.Language), Cwd: c.Cwd, CreatedAt: c.CreatedAt.UTC(), Busy: c.Busy}
}
