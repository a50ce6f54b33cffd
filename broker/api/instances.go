package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (s *Server) createInstance(ctx context.Context, c call[CreateInstanceRequest]) (int, Instance, error) {
	info, created, err := s.instances.Create(ctx, c.tenant, instance.CreateRequest{
		Session:      c.body.SessionID,
		Key:          c.key,
		Template:     c.body.Template,
		Language:     c.body.Language,
		Provider:     c.body.Provider,
		Env:          c.body.Env,
		Requirements: c.body.Requirements,
		Labels:       c.body.Labels,
		TTL:          duration(c.body.TTL),
		Idle:         duration(c.body.Idle),
		Wait:         waitOf(c.body.WaitMS),
		Languages:    c.body.Languages,
		Capabilities: capabilitiesOf(c.body.Capabilities),
	})
	if err != nil {
		return 0, Instance{}, err
	}
	if created {
		return http.StatusCreated, instanceOf(info), nil
	}
	return http.StatusOK, instanceOf(info), nil
}

// Bounds of a page of instances.
const (
	defaultPage = 100
	maxPage     = 1000
)

func (s *Server) listInstances(_ context.Context, c call[none]) (int, InstanceList, error) {
	req := instance.ListRequest{
		Labels:  map[string]string{},
		Session: c.query.text("session_id"), Provider: c.query.text("provider"),
		Limit: int(c.query.integer("limit", defaultPage)), After: c.query.text("after"),
	}
	for _, label := range c.query.all("label") {
		name, value, ok := strings.Cut(label, "=")
		if !ok {
			return 0, InstanceList{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "label", "must be name=value")
		}
		if v, again := req.Labels[name]; again && v != value {
			return 0, InstanceList{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "label", "an instance has one value for each name")
		}
		req.Labels[name] = value
	}
	page := s.instances.List(c.tenant, req)
	list := InstanceList{Instances: []Instance{}}
	for _, info := range page.Instances {
		list.Instances = append(list.Instances, instanceOf(info))
	}
	if page.More {
		list.Next = list.Instances[len(list.Instances)-1].ID
	}
	return http.StatusOK, list, nil
}

func (s *Server) getInstance(_ context.Context, c call[none]) (int, Instance, error) {
	info, err := s.instances.Get(c.tenant, c.id)
	if err != nil {
		return 0, Instance{}, err
	}
	return http.StatusOK, instanceOf(info), nil
}

func (s *Server) renewInstance(_ context.Context, c call[RenewInstanceRequest]) (int, Instance, error) {
	info, err := s.instances.Renew(c.tenant, c.id, duration(c.body.TTL))
	if err != nil {
		return 0, Instance{}, err
	}
	return http.StatusOK, instanceOf(info), nil
}

func (s *Server) destroyInstance(ctx context.Context, c call[none]) (int, none, error) {
	return http.StatusNoContent, none{}, s.instances.Destroy(ctx, c.tenant, c.id)
}

func instanceOf(info instance.Info) Instance {
	return Instance{
		ID:         info.ID.String(),
		SessionID:  info.ID.Session,
		Provider:   info.Provider,
		Template:   info.Template,
		Metadata:   info.Metadata,
		Labels:     info.Labels,
		State:      stateOf(info),
		CreatedAt:  info.CreatedAt.UTC(),
		LastUsedAt: info.LastUsed.UTC(),
		ExpiresAt:  info.ExpiresAt.UTC(),
		TTL:        info.TTL.Seconds(),
		Idle:       info.Idle.Seconds(),
		Executions: info.Executions,
		Routing:    routingOf(info.Routing),
	}
}

func stateOf(info instance.Info) string {
	if info.Paused {
		return "paused"
	}
	return "running"
}

func (s *Server) listProviders(_ context.Context, c call[none]) (int, ProviderList, error) {
	list := ProviderList{Providers: []Provider{}}
	for _, info := range s.instances.Providers(c.tenant) {
		list.Providers = append(list.Providers, providerOf(info))
	}
	return http.StatusOK, list, nil
}

func providerOf(info instance.ProviderInfo) Provider {
	d := info.Description
	p := Provider{
		ID:           info.Label,
		Plugin:       info.Plugin,
		Version:      d.Version,
		Summary:      d.Summary,
		Active:       info.Active,
		Languages:    words(d.Languages),
		Templates:    []Template{},
		Capabilities: words(d.Capabilities),
		State:        info.Status.State,
		Reason:       info.Status.Reason,
		Details:      info.Status.Details,
	}
	for _, t := range d.Templates {
		p.Templates = append(p.Templates, Template{Name: t.Name, Description: t.Description, Languages: words(t.Languages)})
	}
	return p
}

func words[T ~string](list []T) []string {
	texts := make([]string, 0, len(list))
	for _, w := range list {
		texts = append(texts, string(w))
	}
	return texts
}
