package api

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// adminInstanceRoutes are about the instances of all tenants.
func (s *Server) adminInstanceRoutes() {
	const path = "/api/admin/sandbox/instances"
	register(s, operation{
		method: http.MethodGet, path: path, id: "adminListInstances", tag: tagAdmin, admin: true,
		summary: "List the instances of all tenants",
		query: []parameter{
			{name: "tenant", doc: "Only those of this tenant."},
			{name: "session_id", doc: "Only those of sessions of this name."},
			{name: "provider", doc: "Only those of this provider."},
			{name: "limit", kind: integerParameter, least: 1, most: maxPage, doc: "At most so many; 100 unless given."},
			{name: "after", doc: "Only those behind this ID: next of the page before."},
		},
		success: []int{http.StatusOK},
	}, s.adminListInstances)
	register(s, operation{
		method: http.MethodGet, path: path + "/{id}", id: "adminGetInstance", tag: tagAdmin, admin: true,
		summary: "Look at an instance of any tenant",
		success: []int{http.StatusOK}, codes: []sdk.Code{sdk.CodeNotFound},
	}, func(_ context.Context, c call[none]) (int, AdminInstanceAnswer, error) {
		info, err := s.instances.Inspect(c.id)
		if err != nil {
			return 0, AdminInstanceAnswer{}, err
		}
		return http.StatusOK, AdminInstanceAnswer{Data: adminInstanceOf(info)}, nil
	})
	register(s, operation{
		method: http.MethodDelete, path: path + "/{id}", id: "adminKillInstance", tag: tagAdmin, admin: true,
		summary: "Destroy an instance of any tenant",
		details: "Executions in it end at once, whether or not the provider answers, and are answered as cancelled by an administrator. " +
			"After an error the instance is out of use; try again, or leave it to the broker.",
		success: []int{http.StatusNoContent}, codes: append(providerCodes(), sdk.CodeNotFound),
	}, func(ctx context.Context, c call[none]) (int, none, error) {
		return http.StatusNoContent, none{}, s.instances.Kill(ctx, c.id)
	})
}

func (s *Server) adminListInstances(_ context.Context, c call[none]) (int, AdminInstanceList, error) {
	page := s.instances.ListAll(c.query.text("tenant"), instance.ListRequest{
		Session: c.query.text("session_id"), Provider: c.query.text("provider"),
		Limit: int(c.query.integer("limit", defaultPage)), After: c.query.text("after"),
	})
	list := AdminInstanceList{Data: []AdminInstance{}}
	for _, info := range page.Instances {
		list.Data = append(list.Data, adminInstanceOf(info))
	}
	if page.More {
		list.Next = list.Data[len(list.Data)-1].ID
	}
	return http.StatusOK, list, nil
}

func adminInstanceOf(info instance.Info) AdminInstance {
	return AdminInstance{Tenant: info.ID.Tenant, Instance: instanceOf(info)}
}
