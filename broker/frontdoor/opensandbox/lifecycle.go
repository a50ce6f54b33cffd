package opensandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (d *Door) registerLifecycle() {
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/health", Public: true, Quiet: true}, d.health)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/v1/health", Public: true, Quiet: true}, d.health)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/v1/metrics/events", Public: true, Quiet: true}, d.countEvent)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/v1/sandboxes", Resumes: true}, d.create)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/v1/sandboxes", AnyQuery: true}, d.list)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/v1/sandboxes/{id}"}, d.get)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: "/v1/sandboxes/{id}"}, d.destroy)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/v1/sandboxes/{id}/pause"}, d.pause)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/v1/sandboxes/{id}/resume"}, d.resume)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/v1/sandboxes/{id}/renew-expiration"}, d.renew)
	rest.Register(d.api, rest.Operation{Method: http.MethodPatch, Path: "/v1/sandboxes/{id}/metadata"}, d.patchMetadata)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/v1/sandboxes/{id}/endpoints/{port}", AnyQuery: true}, d.endpoint)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/v1/sandboxes/{id}/diagnostics/{kind}", AnyQuery: true}, d.diagnostics)
	for _, never := range []struct{ path, what string }{
		{"/v1/pools", "pools"},
		{"/v1/pools/{name}", "pools"},
		{"/v1/templates", "templates"},
		{"/v1/templates/{name}", "templates"},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			rest.Register(d.api, rest.Operation{Method: method, Path: never.path, AnyQuery: true}, func(context.Context, rest.Call[rest.Raw]) (int, rest.None, error) {
				return 0, rest.None{}, unavailable("this server has no " + never.what + ".")
			})
		}
	}
}

type health struct {
	Status string `json:"status"`
}

func (d *Door) health(context.Context, rest.Call[rest.None]) (int, health, error) {
	return http.StatusOK, health{"healthy"}, nil
}

// countEvent takes what SDKs tell of their use, and keeps none of it.
func (d *Door) countEvent(context.Context, rest.Call[rest.Raw]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, nil
}

// sandbox is one as clients see it.
type sandbox struct {
	ID         string            `json:"id"`
	Image      *image            `json:"image,omitempty"`
	SnapshotID string            `json:"snapshotId,omitempty"`
	Status     sandboxStatus     `json:"status"`
	Entrypoint []string          `json:"entrypoint"`
	Metadata   map[string]string `json:"metadata"`
	CreatedAt  time.Time         `json:"createdAt"`
	ExpiresAt  time.Time         `json:"expiresAt"`
}

type sandboxStatus struct {
	State string `json:"state"`
}

// The states that a sandbox of ours can be seen in.
const (
	stateRunning = "Running"
	statePaused  = "Paused"
)

// sandboxOfInstance shows an instance.
func sandboxOfInstance(info instance.Info) sandbox {
	n := noteOf(info)
	s := sandbox{
		ID: info.ID.Instance, SnapshotID: n.Snapshot, Status: sandboxStatus{stateRunning}, Entrypoint: n.Entrypoint,
		Metadata: info.Labels, CreatedAt: info.CreatedAt.UTC(), ExpiresAt: info.ExpiresAt.UTC(),
	}
	if n.Snapshot == "" {
		s.Image = &image{URI: n.Image}
	}
	if info.Paused {
		s.Status.State = statePaused
	}
	if s.Metadata == nil {
		s.Metadata = map[string]string{}
	}
	return s
}

// create makes a sandbox and answers when its ports can be asked for.
func (d *Door) create(ctx context.Context, c rest.Call[rest.Raw]) (int, sandbox, error) {
	settings := d.settings.Load()
	req, err := d.readCreate(c.Body, c.Tenant, *settings)
	if err != nil {
		return 0, sandbox{}, err
	}
	req.instance.Provider, req.instance.Wait, req.instance.Key = settings.Provider, settings.Wait, c.Key
	if err := d.goOn(c.Tenant, req.snapshot, &req.instance); err != nil {
		return 0, sandbox{}, asSent(err)
	}
	info, created, err := d.instances.Create(ctx, c.Tenant, req.instance)
	if err != nil {
		return 0, sandbox{}, asSent(err)
	}
	if err := d.startEntrypoint(ctx, c.Tenant, info, created, c.Key != "", req.entrypoint); err != nil {
		return 0, sandbox{}, err
	}
	shown := sandboxOfInstance(info)
	shown.Image, shown.SnapshotID = nil, "" // as in OpenSandbox's own answer
	c.SetHeader("Location", c.Mounted()+"/v1/sandboxes/"+shown.ID)
	return http.StatusAccepted, shown, nil
}

func (d *Door) get(ctx context.Context, c rest.Call[rest.None]) (int, sandbox, error) {
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	return http.StatusOK, sandboxOfInstance(info), err
}

// destroy ends a sandbox. A client asks once more when it did not hear the answer.
func (d *Door) destroy(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, rest.None{}, err
	}
	return http.StatusNoContent, rest.None{}, d.instances.Destroy(ctx, c.Tenant, info.ID.String())
}

func (d *Door) pause(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err == nil && info.Paused {
		err = sdk.Errorf(sdk.CodeConflict, "The sandbox is paused already.")
	}
	if err != nil {
		return 0, rest.None{}, err
	}
	_, err = d.instances.Pause(ctx, c.Tenant, info.ID.String())
	return http.StatusAccepted, rest.None{}, err
}

func (d *Door) resume(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err == nil && !info.Paused {
		err = sdk.Errorf(sdk.CodeConflict, "The sandbox is not paused.")
	}
	if err != nil {
		return 0, rest.None{}, err
	}
	_, err = d.instances.Resume(ctx, c.Tenant, info.ID.String())
	return http.StatusAccepted, rest.None{}, err
}

type expiration struct {
	ExpiresAt time.Time `json:"expiresAt"`
}

// renew moves the end of a sandbox, to no later than its maximum lifetime: what is granted
// is in the answer.
func (d *Door) renew(ctx context.Context, c rest.Call[rest.Raw]) (int, expiration, error) {
	var body struct {
		ExpiresAt *time.Time `json:"expiresAt"`
	}
	if err := json.Unmarshal(c.Body, &body); err != nil || body.ExpiresAt == nil {
		return 0, expiration{}, refused("expiresAt", "is required: a time as RFC 3339 has it, such as 2026-01-02T15:04:05Z")
	}
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, expiration{}, err
	}
	ttl := time.Until(*body.ExpiresAt)
	if ttl <= 0 {
		return 0, expiration{}, refused("expiresAt", "must be in the future")
	}
	info, err = d.instances.Renew(ctx, c.Tenant, info.ID.String(), ttl)
	return http.StatusOK, expiration{info.ExpiresAt.UTC()}, err
}

// patchMetadata is a JSON merge patch: null removes.
func (d *Door) patchMetadata(ctx context.Context, c rest.Call[rest.Raw]) (int, sandbox, error) {
	patch := map[string]*string{}
	if err := json.Unmarshal(c.Body, &patch); err != nil || patch == nil {
		return 0, sandbox{}, refused("metadata", "must be an object whose values are text, or null to remove one")
	}
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, sandbox{}, err
	}
	set := map[string]string{}
	for name, value := range patch {
		if value != nil {
			set[name] = *value
		}
	}
	if err := checkMetadata(set); err != nil {
		return 0, sandbox{}, err
	}
	if len(patch) > 0 {
		info, err = d.instances.Relabel(ctx, c.Tenant, info.ID.String(), func(labels map[string]string) {
			for name := range patch {
				delete(labels, name)
			}
			maps.Copy(labels, set)
		})
	}
	return http.StatusOK, sandboxOfInstance(info), asSent(err)
}

// endpointAnswer says where a port of a sandbox is reached. The address has no scheme,
// since the client chooses that.
type endpointAnswer struct {
	Endpoint string            `json:"endpoint"`
	Headers  map[string]string `json:"headers"`
}

// endpoint answers the same with the server's proxy and without: this door is it.
func (d *Door) endpoint(ctx context.Context, c rest.Call[rest.None]) (int, endpointAnswer, error) {
	query, err := frontdoor.Query(c.RawQuery)
	if err != nil {
		return 0, endpointAnswer{}, refused("query", "is malformed")
	}
	if query.Has("expires") {
		return 0, endpointAnswer{}, refused("expires", "is not served here: the address of a port is valid as long as the sandbox is")
	}
	switch query.Get("use_server_proxy") {
	case "", "true", "false", "True", "False", "1", "0":
	default:
		return 0, endpointAnswer{}, refused("use_server_proxy", "must be true or false")
	}
	port, err := strconv.ParseUint(c.Path["port"], 10, 16)
	if err != nil || port == 0 {
		return 0, endpointAnswer{}, refused("port", "must be a number from 1 to 65535")
	}
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, endpointAnswer{}, err
	}
	base := d.settings.Load().Address
	if base == "" {
		base = c.Host
	}
	token := d.tokens.of(info.ID)
	answer := endpointAnswer{
		Endpoint: fmt.Sprintf("%s%s/sandboxes/%s/proxy/%d", base, c.Mounted(), info.ID.Instance, port),
		Headers:  map[string]string{headerAccessToken: token},
	}
	if c.Path["port"] == portEgress {
		answer.Headers[headerEgressAuth] = token
	}
	return http.StatusOK, answer, nil
}

// sandboxList is a page of them.
type sandboxList struct {
	Items      []sandbox  `json:"items"`
	Pagination pagination `json:"pagination"`
}

type pagination struct {
	Page        int  `json:"page"`
	PageSize    int  `json:"pageSize"`
	TotalItems  int  `json:"totalItems"`
	TotalPages  int  `json:"totalPages"`
	HasNextPage bool `json:"hasNextPage"`
}

// Sizes of a page.
const (
	defaultPageSize = 20
	maxPageSize     = 200
)

// list shows the tenant's sandboxes, the newest first.
func (d *Door) list(ctx context.Context, c rest.Call[rest.None]) (int, sandboxList, error) {
	query, err := frontdoor.Query(c.RawQuery)
	if err != nil {
		return 0, sandboxList{}, refused("query", "is malformed")
	}
	// One value holds all pairs. Some clients encode it twice.
	labels, err := metadataOf(query.Get("metadata"))
	if err != nil {
		return 0, sandboxList{}, err
	}
	states := query["state"]
	page, err := d.instances.ListEverywhere(ctx, c.Tenant, instance.ListRequest{Labels: labels, FrontDoor: Name})
	if err != nil {
		return 0, sandboxList{}, err
	}
	var all []sandbox
	for _, info := range page.Instances {
		s := sandboxOfInstance(info)
		if len(states) == 0 || slices.ContainsFunc(states, func(state string) bool { return strings.EqualFold(state, s.Status.State) }) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b sandbox) int {
		if n := b.CreatedAt.Compare(a.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	shown, place, err := pageOf(all, query)
	return http.StatusOK, sandboxList{Items: append([]sandbox{}, shown...), Pagination: place}, err
}

func numberOf(query url.Values, name string, otherwise, most int) (int, error) {
	if !query.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(query.Get(name))
	if err != nil || n < 1 || n > most {
		return 0, refused(name, "must be a number from 1 to %d", most)
	}
	return n, nil
}

// metadataOf reads what a list is to be filtered by.
func metadataOf(text string) (map[string]string, error) {
	pairs, err := frontdoor.Query(text)
	if err != nil {
		return nil, refused("metadata", "must be written as key=value&key2=value2")
	}
	labels := map[string]string{}
	for name, values := range pairs {
		if name == "" || len(values) != 1 {
			return nil, refused("metadata", "must be written as key=value&key2=value2, each key once")
		}
		labels[name] = values[0]
	}
	return labels, nil
}
