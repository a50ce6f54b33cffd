package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// withContexts lends the contexts of an instance. The context that use gets ends
// with ctx and when the broker stops.
func (s *Server) withContexts(ctx context.Context, who tenant.Tenant, id string, use func(context.Context, sdk.Contexts, *instance.Lease) error) error {
	lease, err := s.instances.Lease(ctx, who, id, sdk.CapabilityContexts)
	if err != nil {
		return err
	}
	defer lease.Release()
	contexts, err := instance.Capable[sdk.Contexts](lease)
	if err != nil {
		return err
	}
	ctx, cancel := lease.Within(ctx)
	defer cancel()
	return lease.Fault(ctx, use(ctx, contexts, lease))
}

func (s *Server) createContext(ctx context.Context, c call[CreateContextRequest]) (int, Context, error) {
	var created sdk.CodeContext
	err := s.withContexts(ctx, c.tenant, c.id, func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		req := sdk.CreateContextRequest{Cwd: c.body.Cwd, Env: c.body.Env}
		err := lease.BoundContext(&req, c.body.Language)
		if err == nil {
			created, err = contexts.CreateContext(ctx, req)
		}
		return err
	})
	return http.StatusCreated, contextOf(created), err
}

func (s *Server) listContexts(ctx context.Context, c call[none]) (int, ContextList, error) {
	list := ContextList{Contexts: []Context{}}
	err := s.withContexts(ctx, c.tenant, c.id, func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		all, err := contexts.ListContexts(ctx, lease.InstanceID)
		for _, one := range all {
			list.Contexts = append(list.Contexts, contextOf(one))
		}
		return err
	})
	return http.StatusOK, list, err
}

func (s *Server) getContext(ctx context.Context, c call[none]) (int, Context, error) {
	var found sdk.CodeContext
	err := s.withContexts(ctx, c.tenant, c.id, func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) (err error) {
		found, err = findContext(ctx, contexts, lease, c.path["context"])
		return err
	})
	return http.StatusOK, contextOf(found), err
}

func (s *Server) restartContext(ctx context.Context, c call[none]) (int, none, error) {
	return http.StatusNoContent, none{}, s.withContexts(ctx, c.tenant, c.id, func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		return contexts.RestartContext(ctx, lease.InstanceID, c.path["context"])
	})
}

// deleteContext answers for an unknown context as for an unknown instance, though
// for a provider that is a success.
func (s *Server) deleteContext(ctx context.Context, c call[none]) (int, none, error) {
	return http.StatusNoContent, none{}, s.withContexts(ctx, c.tenant, c.id, func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		found, err := findContext(ctx, contexts, lease, c.path["context"])
		if err != nil {
			return err
		}
		return contexts.DeleteContext(ctx, lease.InstanceID, found.ID)
	})
}

func findContext(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease, id string) (sdk.CodeContext, error) {
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

func contextOf(c sdk.CodeContext) Context {
	return Context{ID: c.ID, Language: string(c.Language), Cwd: c.Cwd, CreatedAt: c.CreatedAt.UTC(), Busy: c.Busy}
}
