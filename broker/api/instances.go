package api

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (s *Server) createInstance(ctx context.Context, c call[CreateInstanceRequest]) (int, Instance, error) {
	info, created, err := s.instances.Create(ctx, c.tenant, instance.CreateRequest{
		Session:  c.body.SessionID,
		Template: c.body.Template,
		Language: c.body.Language,
		Provider: c.body.Provider,
		Env:      c.body.Env,
		TTL:      duration(c.body.TTL),
		Idle:     duration(c.body.Idle),
	})
	if err != nil {
		return 0, Instance{}, err
	}
	if created {
		return http.StatusCreated, instanceOf(info), nil
	}
	return http.StatusOK, instanceOf(info), nil
}

func (s *Server) listInstances(_ context.Context, c call[none]) (int, InstanceList, error) {
	list := InstanceList{Instances: []Instance{}}
	for _, info := range s.instances.List(c.tenant) {
		list.Instances = append(list.Instances, instanceOf(info))
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
		CreatedAt:  info.CreatedAt.UTC(),
		LastUsedAt: info.LastUsed.UTC(),
		ExpiresAt:  info.ExpiresAt.UTC(),
		TTL:        info.TTL.Seconds(),
		Idle:       info.Idle.Seconds(),
		Executions: info.Executions,
	}
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

func (s *Server) healthz(context.Context, call[none]) (int, Health, error) {
	return http.StatusOK, Health{Status: "ok"}, nil
}

func (s *Server) readyz(context.Context, call[none]) (int, Health, error) {
	if s.instances.Draining() {
		return 0, Health{}, sdk.Errorf(sdk.CodeUnavailable, "The broker is shutting down.")
	}
	active, ok := s.instances.ActiveProvider()
	if !ok {
		return 0, Health{}, sdk.Errorf(sdk.CodeUnavailable, "There is no active provider.")
	}
	if !active.Status.Ready {
		return 0, Health{}, &instance.Fault{
			Provider: active.Label,
			Err:      sdk.Errorf(sdk.CodeUnavailable, "The active provider is not ready: %s", active.Status.Reason),
		}
	}
	return http.StatusOK, Health{Status: "ready"}, nil
}
