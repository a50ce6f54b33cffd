package v1

import (
	"context"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// instanceRoutes are about the life of instances.
type instanceRoutes struct {
	instances Instances
	snapshots Snapshots
	volumes   Volumes
}

func (h instanceRoutes) register(a *rest.API) {
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/instances", ID: "createInstance", Tag: tagInstances,
		Summary: "Create an instance",
		Details: "Answers 201 for a new instance and 200 for the one that the session already has on that provider. " +
			"A template, ttl, idle, network or snapshot that differs from the session's instance is a conflict. " +
			"With snapshot it goes on from there, at the provider that has the snapshot and with its template.",
		Resumes: true,
		Success: []int{http.StatusCreated, http.StatusOK},
		Codes:   append(providerCodes(), sdk.CodeConflict, sdk.CodeNotAllowed, sdk.CodeNotFound),
	}, h.createInstance)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: "/api/v1/instances", ID: "listInstances", Tag: tagInstances,
		Summary: "List your instances",
		Details: "With session_id, while nobody knows yet whether the instance of that session has outlived a restart of the broker, the answer is late, or a refusal.",
		Query: []rest.Parameter{
			{Name: "label", Multiple: true, Doc: "Only those with this label, as name=value. Several must all be there."},
			{Name: "session_id", Doc: "Only those of this session."},
			{Name: "provider", Doc: "Only those of this provider."},
			{Name: "limit", Kind: rest.Integer, Least: 1, Most: maxPage, Doc: "At most so many; 100 unless given."},
			{Name: "after", Doc: "Only those behind this ID: next of the page before."},
		},
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, h.listInstances)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: "/api/v1/instances/{id}", ID: "getInstance", Tag: tagInstances,
		Summary: "Look at an instance",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeNotFound},
	}, h.getInstance)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/instances/{id}/renew", ID: "renewInstance", Tag: tagInstances,
		Summary: "Move the end of an instance",
		Details: "Sets expires_at to ttl seconds from now, but not beyond the operator's maximum lifetime: the answer's expires_at says what was granted. " +
			"That may be earlier than before. It counts as a use for the idle limit. An instance whose time is over cannot be renewed; an accepted renewal is never cut short by an expiry that was due.",
		Success: []int{http.StatusOK},
		Codes:   []sdk.Code{sdk.CodeNotFound, sdk.CodeUnavailable},
	}, h.renewInstance)
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: "/api/v1/instances/{id}", ID: "destroyInstance", Tag: tagInstances,
		Summary: "Destroy an instance",
		Details: "Executions in it are answered as cancelled. After an error the instance is out of use; try again, or leave it to the broker.",
		Success: []int{http.StatusNoContent},
		Codes:   append(providerCodes(), sdk.CodeNotFound),
	}, h.destroyInstance)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/instances/{id}/pause", ID: "pauseInstance", Tag: tagInstances,
		Summary: "Pause an instance",
		Details: "Its processes stop where they are; memory and files stay, and so does its time limit. It takes no executions until it is resumed. Pausing a paused instance changes nothing. Where it holds no memory then, it counts for max_paused and not for max_instances; SB008 says that there is no room for another one.",
		Success: []int{http.StatusOK}, Codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, h.pauseInstance)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/instances/{id}/resume", ID: "resumeInstance", Tag: tagInstances,
		Summary: "Let a paused instance go on",
		Details: "One that holds no memory needs a place among max_instances again. SB008 says that there is none, or no room for it to run; it stays paused.",
		Success: []int{http.StatusOK}, Codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, h.resumeInstance)
	h.registerMetrics(a)
	h.registerNetwork(a)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: "/api/v1/providers", ID: "listProviders", Tag: tagProviders,
		Summary: "List the providers that you may use",
		Success: []int{http.StatusOK},
	}, h.listProviders)
}

func (h instanceRoutes) createInstance(ctx context.Context, c rest.Call[client.CreateInstanceRequest]) (int, client.Instance, error) {
	network, err := networkOf(c.Body.Network)
	if err != nil {
		return 0, client.Instance{}, err
	}
	if err := h.bound(ctx, c); err != nil {
		return 0, client.Instance{}, err
	}
	provider, volumes, release, err := h.attach(c.Tenant, c.Body)
	if err != nil {
		return 0, client.Instance{}, h.apart(c.Tenant, c.Body.SessionID, err)
	}
	defer release()
	req := instance.CreateRequest{
		Session:      c.Body.SessionID,
		Key:          c.Key,
		Template:     c.Body.Template,
		Language:     c.Body.Language,
		Provider:     provider,
		Volumes:      volumes,
		Env:          c.Body.Env,
		Requirements: c.Body.Requirements,
		Labels:       c.Body.Labels,
		TTL:          duration(c.Body.TTL),
		Idle:         duration(c.Body.Idle),
		Wait:         waitOf(c.Body.WaitMS),
		Languages:    c.Body.Languages,
		Capabilities: capabilitiesOf(c.Body.Capabilities),
		FrontDoor:    c.FrontDoor(),
		Network:      network,
	}
	if c.Body.Snapshot != "" {
		if err := h.snapshots.Source(c.Tenant, c.Body.Snapshot, &req); err != nil {
			return 0, client.Instance{}, h.apart(c.Tenant, c.Body.SessionID, err)
		}
	}
	info, created, err := h.instances.Create(ctx, c.Tenant, req)
	if created {
		return http.StatusCreated, instanceOf(info), err
	}
	return http.StatusOK, instanceOf(info), err
}

// bound returns a peer.ElsewhereError for a session that another broker has, if what is asked for
// is bound to a broker as well.
func (h instanceRoutes) bound(ctx context.Context, c rest.Call[client.CreateInstanceRequest]) error {
	if c.Body.Snapshot == "" && len(c.Body.Volumes) == 0 {
		return nil
	}
	return h.instances.SessionElsewhere(ctx, c.Tenant, c.Body.SessionID)
}

// Bounds of a page of instances.
const (
	defaultPage = 100
	maxPage     = 1000
)

// settlePatience is how long the list of a session waits for what the providers say of it
// after a restart of the broker.
const settlePatience = 8 * time.Second

func (h instanceRoutes) listInstances(ctx context.Context, c rest.Call[rest.None]) (int, client.InstanceList, error) {
	labels, err := labelsOf(c.Query.All("label"))
	if err != nil {
		return 0, client.InstanceList{}, err
	}
	req := instance.ListRequest{
		Labels:  labels,
		Session: c.Query.Text("session_id"), Provider: c.Query.Text("provider"),
		Limit: int(c.Query.Integer("limit", defaultPage)), After: c.Query.Text("after"),
	}
	unknown := 0
	if req.Session != "" {
		ctx, cancel := context.WithTimeout(ctx, settlePatience)
		defer cancel()
		unknown = len(h.instances.Settled(ctx, c.Tenant, req.Session, "")) // before the look, which finds what was settled meanwhile
	}
	page, err := h.page(ctx, c.Tenant, req)
	if err != nil {
		return 0, client.InstanceList{}, err
	}
	if unknown > 0 && len(page.Instances) == 0 && req.After == "" {
		return 0, client.InstanceList{}, unsettled()
	}
	if req.Session != "" && len(page.Instances) == 0 {
		if err := h.instances.SessionElsewhere(ctx, c.Tenant, req.Session); err != nil {
			return 0, client.InstanceList{}, err
		}
	}
	list := client.InstanceList{Instances: []client.Instance{}}
	for _, info := range page.Instances {
		list.Instances = append(list.Instances, instanceOf(info))
	}
	if page.More {
		list.Next = list.Instances[len(list.Instances)-1].ID
	}
	return http.StatusOK, list, nil
}

// page has the instances of all brokers, but of a session those of this one: a session is with
// one broker, which is asked in the place of this one.
func (h instanceRoutes) page(ctx context.Context, who tenant.Tenant, req instance.ListRequest) (instance.Page, error) {
	if req.Session != "" {
		return h.instances.List(who, req), nil
	}
	return h.instances.ListEverywhere(ctx, who, req)
}

// unsettled is the refusal to say that a session has no instance before that is known.
func unsettled() error {
	err := sdk.Errorf(sdk.CodeUnavailable, "The broker was restarted, and the provider of this session's instance has not said yet whether it still has it. Try again.")
	err.RetryAfter = time.Second
	return err
}

func (h instanceRoutes) getInstance(ctx context.Context, c rest.Call[rest.None]) (int, client.Instance, error) {
	info, err := h.instances.Get(ctx, c.Tenant, c.Path["id"])
	return http.StatusOK, instanceOf(info), err
}

func (h instanceRoutes) renewInstance(ctx context.Context, c rest.Call[client.RenewInstanceRequest]) (int, client.Instance, error) {
	info, err := h.instances.Renew(ctx, c.Tenant, c.Path["id"], duration(c.Body.TTL))
	return http.StatusOK, instanceOf(info), err
}

func (h instanceRoutes) destroyInstance(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, h.instances.Destroy(ctx, c.Tenant, c.Path["id"])
}

func instanceOf(info instance.Info) client.Instance {
	return client.Instance{
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
		FrontDoor:  info.FrontDoor,
		From:       info.From,
		Volumes:    mountsOf(info.Volumes),
		Routing:    routingOf(info.Routing),
	}
}

// The states that are shown.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

func stateOf(info instance.Info) string {
	if info.Paused {
		return statePaused
	}
	return stateRunning
}

func (h instanceRoutes) listProviders(_ context.Context, c rest.Call[rest.None]) (int, client.ProviderList, error) {
	list := client.ProviderList{Providers: []client.Provider{}}
	for _, info := range h.instances.Providers(c.Tenant) {
		list.Providers = append(list.Providers, providerOf(info))
	}
	return http.StatusOK, list, nil
}

func providerOf(info instance.ProviderInfo) client.Provider {
	d := info.Description
	p := client.Provider{
		ID:           info.Label,
		Plugin:       info.Plugin,
		Version:      d.Version,
		Summary:      d.Summary,
		Active:       info.Active,
		Languages:    words(d.Languages),
		Templates:    []client.Template{},
		Capabilities: words(d.Capabilities),
		State:        info.Status.State,
		Reason:       info.Status.Reason,
		Details:      info.Status.Details,
	}
	for _, t := range d.Templates {
		p.Templates = append(p.Templates, client.Template{Name: t.Name, Description: t.Description, Languages: words(t.Languages)})
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

func (h instanceRoutes) pauseInstance(ctx context.Context, c rest.Call[rest.None]) (int, client.Instance, error) {
	info, err := h.instances.Pause(ctx, c.Tenant, c.Path["id"])
	return http.StatusOK, instanceOf(info), err
}

func (h instanceRoutes) resumeInstance(ctx context.Context, c rest.Call[rest.None]) (int, client.Instance, error) {
	info, err := h.instances.Resume(ctx, c.Tenant, c.Path["id"])
	return http.StatusOK, instanceOf(info), err
}

func capabilitiesOf(names []string) (list []sdk.Capability) {
	for _, name := range names {
		list = append(list, sdk.Capability(name))
	}
	return list
}

func circuitOf(s routing.Standing) client.AdminCircuit {
	circuit := client.AdminCircuit{State: string(s.Circuit), Failures: s.Failures, CreationSeconds: s.Creation.Seconds()}
	if circuit.State == "" {
		circuit.State = string(routing.Closed)
	}
	if !s.Until.IsZero() {
		circuit.Until = s.Until.UTC()
	}
	return circuit
}

// routingOf is nil for what was not routed.
func routingOf(r instance.Routing) *client.Routing {
	if r.Reason == "" {
		return nil
	}
	return &client.Routing{Reason: r.Reason, PlacedBy: r.PlacedBy, Tried: triedOf(r.Tried)}
}

func triedOf(tried []instance.Tried) (list []client.RoutingRefusal) {
	for _, t := range tried {
		list = append(list, client.RoutingRefusal{Provider: t.Provider, Code: string(t.Code)})
	}
	return list
}
