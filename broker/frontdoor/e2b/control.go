package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (d *Door) registerControl() {
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: "/health", Public: true, Quiet: true, AnyQuery: true}, d.health)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/sandboxes", Resumes: true}, d.createFor(oldTimeout))
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/v2/sandboxes", Resumes: true}, d.createFor(newTimeout))
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/sandboxes", AnyQuery: true}, d.listRunning)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/v2/sandboxes", AnyQuery: true}, d.list)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/sandboxes/metrics", AnyQuery: true}, d.metricsOfSeveral)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/sandboxes/{id}"}, d.get)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: "/sandboxes/{id}"}, d.kill)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/sandboxes/{id}/timeout"}, d.setTimeout)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/sandboxes/{id}/refreshes"}, d.refresh)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/sandboxes/{id}/pause"}, d.pause)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/sandboxes/{id}/resume"}, d.resume)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/sandboxes/{id}/connect"}, d.connect)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/v2/sandboxes/{id}/connect"}, d.connect)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/sandboxes/{id}/metrics", AnyQuery: true}, d.metrics)
	rest.Register(d.api, rest.Operation{Method: http.MethodPut, Path: "/sandboxes/{id}/network"}, d.setNetwork)
	for _, not := range []struct{ method, path, what string }{
		{http.MethodGet, "/sandboxes/{id}/logs", "logs of sandboxes"},
		{http.MethodGet, "/v2/sandboxes/{id}/logs", "logs of sandboxes"},
		{http.MethodGet, "/templates", "templates that clients see or make: the operator names them"},
		{http.MethodPost, "/templates", "templates that clients see or make: the operator names them"},
		{http.MethodPost, "/v2/templates", "templates that clients see or make: the operator names them"},
		{http.MethodPost, "/v3/templates", "templates that clients see or make: the operator names them"},
		{http.MethodGet, "/templates/*", "templates that clients see or make: the operator names them"},
		{http.MethodPost, "/templates/*", "templates that clients see or make: the operator names them"},
		{http.MethodDelete, "/templates/tags", "templates that clients see or make: the operator names them"},
		{http.MethodPost, "/v2/templates/*", "templates that clients see or make: the operator names them"},
		{http.MethodGet, "/volumes", "volumes"},
		{http.MethodPost, "/volumes", "volumes"},
		{http.MethodGet, "/volumes/*", "volumes"},
		{http.MethodDelete, "/volumes/*", "volumes"},
		{http.MethodGet, "/volumecontent/*", "volumes"},
		{http.MethodPut, "/volumecontent/*", "volumes"},
		{http.MethodPost, "/volumecontent/*", "volumes"},
		{http.MethodDelete, "/volumecontent/*", "volumes"},
		{http.MethodGet, "/secrets", "secrets"},
		{http.MethodPost, "/secrets", "secrets"},
		{http.MethodDelete, "/secrets/*", "secrets"},
	} {
		rest.Register(d.api, rest.Operation{Method: not.method, Path: not.path, AnyQuery: true}, func(context.Context, rest.Call[rest.Raw]) (int, rest.None, error) {
			return 0, rest.None{}, never(not.what)
		})
	}
}

// health answers for the API, and, where a sandbox is named, for that: 204 if it runs.
// It needs no token, as with E2B.
func (d *Door) health(w http.ResponseWriter, r *http.Request, _ rest.Call[rest.None]) error {
	at, err := d.targetOfRequest(r)
	if err != nil {
		return err
	}
	id := at.sandbox
	if id == "" {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	info, err := d.instances.Named(r.Context(), id)
	if frontdoor.Elsewhere(info, err) {
		return err
	}
	if info.FrontDoor != Name || info.Paused || isNotFound(err) {
		return &sandboxGone{error: noSandbox(), sandbox: frontdoor.Clipped(id)}
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// sandboxAnswer is a sandbox as create and connect answer it.
type sandboxAnswer struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	Alias              string  `json:"alias,omitempty"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken"`
	TrafficAccessToken string  `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

const (
	// clientID stands in each answer for clients of long ago.
	clientID = "6532622b"
	// envdVersion promises what this door has: everything up to uploads without a form
	// (0.5.7), and not the metadata of files (0.6.2), for which providers have no place.
	envdVersion = "0.6.1"
)

func (d *Door) sandboxOf(info instance.Info) sandboxAnswer {
	n := noteOf(info)
	a := sandboxAnswer{
		SandboxID: info.ID.Instance, TemplateID: n.Template, Alias: n.alias(info), ClientID: clientID, EnvdVersion: envdVersion,
		EnvdAccessToken: d.tokens.envd(info.ID), TrafficAccessToken: d.tokens.traffic(info.ID), Domain: d.domainOf(),
	}
	return a
}

// listedSandbox is one as lists show it.
type listedSandbox struct {
	TemplateID  string            `json:"templateID"`
	Alias       string            `json:"alias,omitempty"`
	SandboxID   string            `json:"sandboxID"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int               `json:"memoryMB"`
	DiskSizeMB  int               `json:"diskSizeMB"`
	State       string            `json:"state"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// sandboxDetail is one by itself.
type sandboxDetail struct {
	listedSandbox
	EnvdAccessToken string    `json:"envdAccessToken"`
	Domain          *string   `json:"domain"`
	Lifecycle       lifecycle `json:"lifecycle"`
	// AllowInternetAccess is false, or not said.
	AllowInternetAccess *bool       `json:"allowInternetAccess,omitempty"`
	Network             *networking `json:"network,omitempty"`
}

// networking is what its owner has said of its network.
type networking struct {
	AllowPublicTraffic bool     `json:"allowPublicTraffic"`
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// The states that clients know.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

func listedOf(info instance.Info) listedSandbox {
	n := noteOf(info)
	l := listedSandbox{
		TemplateID: n.Template, Alias: n.alias(info), SandboxID: info.ID.Instance, ClientID: clientID,
		StartedAt: info.CreatedAt.UTC(), EndAt: info.ExpiresAt.UTC(),
		CPUCount: sizeOf(info, sdk.MetadataCPUs), MemoryMB: sizeOf(info, sdk.MetadataMemoryMB), DiskSizeMB: sizeOf(info, sdk.MetadataDiskMB),
		State: stateRunning, EnvdVersion: envdVersion, Metadata: info.Labels,
	}
	if info.Paused {
		l.State = statePaused
	}
	return l
}

// sizeOf is what the provider says of the size of a sandbox by that name, rounded up; 0 if it
// says nothing, since clients want a number.
func sizeOf(info instance.Info, name string) int {
	n, err := strconv.ParseFloat(info.Metadata[name], 64)
	if err != nil || !(n > 0 && n <= math.MaxInt32) {
		return 0
	}
	return int(math.Ceil(n))
}

func (d *Door) get(ctx context.Context, c rest.Call[rest.None]) (int, sandboxDetail, error) {
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, sandboxDetail{}, err
	}
	said, internet := d.networkOf(info)
	return http.StatusOK, sandboxDetail{
		Network: said, AllowInternetAccess: internet,
		listedSandbox: listedOf(info), EnvdAccessToken: d.tokens.envd(info.ID), Domain: d.sandboxOf(info).Domain,
		Lifecycle: lifecycleOf(info),
	}, nil
}

func lifecycleOf(info instance.Info) lifecycle {
	l := lifecycle{OnTimeout: "kill", AutoResume: noteOf(info).AutoResume}
	if info.PauseAtEnd {
		l.OnTimeout = "pause"
	}
	return l
}

// kill ends a sandbox.
func (d *Door) kill(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, rest.None{}, err
	}
	return http.StatusNoContent, rest.None{}, d.instances.Destroy(ctx, c.Tenant, info.ID.String())
}

// secondsOf reads a body whose one field of interest is a number of seconds.
func secondsOf(body []byte, field string, least, most int64) (time.Duration, bool, error) {
	fields, err := objectOf(body)
	if err != nil {
		return 0, false, err
	}
	raw, given := fields[field]
	if !given || isNothing(raw) {
		return 0, false, nil
	}
	var n int64
	if err := json.Unmarshal(raw, &n); err != nil || n < least || n > most {
		return 0, false, refused(field, "must be a whole number of seconds from %d to %d", least, most)
	}
	return time.Duration(n) * time.Second, true, nil
}

// setTimeout ends a sandbox so many seconds from now: sooner or later than it was. It
// never lives longer than the operator lets it.
func (d *Door) setTimeout(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	ttl, given, err := secondsOf(c.Body, "timeout", 0, maxTimeout)
	if err == nil && !given {
		err = refused("timeout", "is required: a whole number of seconds")
	}
	if err != nil {
		return 0, rest.None{}, err
	}
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, rest.None{}, err
	}
	if ttl == 0 {
		return http.StatusNoContent, rest.None{}, d.instances.Destroy(ctx, c.Tenant, info.ID.String())
	}
	_, err = d.instances.Renew(ctx, c.Tenant, info.ID.String(), ttl)
	return http.StatusNoContent, rest.None{}, err
}

// refresh moves the end of a sandbox away, never nearer.
func (d *Door) refresh(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	ttl, _, err := secondsOf(c.Body, "duration", 0, 3600)
	if err != nil {
		return 0, rest.None{}, err
	}
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, rest.None{}, err
	}
	_, err = d.extend(ctx, info, c, max(ttl, oldTimeout))
	return http.StatusNoContent, rest.None{}, err
}

// extend has a sandbox live for ttl from now at least.
func (d *Door) extend(ctx context.Context, info instance.Info, c rest.Call[rest.Raw], ttl time.Duration) (instance.Info, error) {
	if time.Until(info.ExpiresAt) >= ttl {
		return info, nil
	}
	return d.instances.Renew(ctx, c.Tenant, info.ID.String(), ttl)
}

// pause freezes a sandbox. It is kept as long as the operator lets a sandbox live.
func (d *Door) pause(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	fields, err := objectOf(c.Body)
	if err != nil {
		return 0, rest.None{}, err
	}
	if raw, given := fields["memory"]; given && string(raw) == "false" {
		return 0, rest.None{}, refused("memory", "must be true here: a pause keeps what runs")
	}
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err == nil && info.Paused {
		err = sdk.Errorf(sdk.CodeConflict, "The sandbox is paused already.")
	}
	if err != nil {
		return 0, rest.None{}, err
	}
	if _, err = d.instances.Pause(ctx, c.Tenant, info.ID.String()); err == nil {
		_, err = d.instances.Renew(ctx, c.Tenant, info.ID.String(), maxTimeout*time.Second)
	}
	return http.StatusNoContent, rest.None{}, err
}

// resume is what clients of long ago have for connect.
func (d *Door) resume(ctx context.Context, c rest.Call[rest.Raw]) (int, sandboxAnswer, error) {
	ttl, given, err := secondsOf(c.Body, "timeout", 1, maxTimeout)
	if err != nil {
		return 0, sandboxAnswer{}, err
	}
	if !given {
		ttl = oldTimeout
	}
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err == nil && !info.Paused {
		err = sdk.Errorf(sdk.CodeConflict, "The sandbox is running already.")
	}
	if err != nil {
		return 0, sandboxAnswer{}, err
	}
	return d.wake(ctx, c, info, ttl)
}

// connect finds a sandbox, resumes it if it is paused, and has it live for the timeout at
// least.
func (d *Door) connect(ctx context.Context, c rest.Call[rest.Raw]) (int, sandboxAnswer, error) {
	ttl, given, err := secondsOf(c.Body, "timeout", 1, maxTimeout)
	if err != nil {
		return 0, sandboxAnswer{}, err
	}
	if !given {
		ttl = newTimeout
	}
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, sandboxAnswer{}, err
	}
	if info.Paused {
		return d.wake(ctx, c, info, ttl)
	}
	info, err = d.extend(ctx, info, c, ttl)
	if err == nil && info.Paused { // its time was over in between
		return d.wake(ctx, c, info, ttl)
	}
	return http.StatusOK, d.sandboxOf(info), err
}

func (d *Door) wake(ctx context.Context, c rest.Call[rest.Raw], info instance.Info, ttl time.Duration) (int, sandboxAnswer, error) {
	if _, err := d.instances.Resume(ctx, c.Tenant, info.ID.String()); err != nil {
		return 0, sandboxAnswer{}, err
	}
	info, err := d.instances.Renew(ctx, c.Tenant, info.ID.String(), ttl)
	return http.StatusCreated, d.sandboxOf(info), err
}

// sandboxMetrics is one sample.
type sandboxMetrics struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// metrics is what a sandbox uses now, as the only sample: none is kept.
func (d *Door) metrics(ctx context.Context, c rest.Call[rest.None]) (int, []sandboxMetrics, error) {
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, nil, err
	}
	m, err := d.measure(ctx, c, info)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, []sandboxMetrics{m}, nil
}

// metricsOfSeveral is the same for up to a hundred.
func (d *Door) metricsOfSeveral(ctx context.Context, c rest.Call[rest.None]) (int, map[string]map[string]sandboxMetrics, error) {
	query, err := url.ParseQuery(c.RawQuery)
	ids := strings.Split(query.Get("sandbox_ids"), ",")
	if err != nil || query.Get("sandbox_ids") == "" || len(ids) > maxPage {
		return 0, nil, refused("sandbox_ids", "must name 1 to %d sandboxes, with commas between them", maxPage)
	}
	found := map[string]sandboxMetrics{}
	for _, id := range ids {
		info, err := d.controlled(ctx, c.Tenant, id)
		if err != nil {
			continue // as one that has ended
		}
		if found[id], err = d.measure(ctx, c, info); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusOK, map[string]map[string]sandboxMetrics{"sandboxes": found}, nil
}

func (d *Door) measure(ctx context.Context, c rest.Call[rest.None], info instance.Info) (sandboxMetrics, error) {
	var m sandboxMetrics
	err := lending.Use(ctx, d.instances, c.Tenant, info.ID.String(), sdk.CapabilityMetrics, func(ctx context.Context, meter sdk.Meter, instanceID string) error {
		now, percent, err := lending.Glance(ctx, meter, instanceID)
		m = sandboxMetrics{
			Timestamp: now.MeasuredAt.UTC(), TimestampUnix: now.MeasuredAt.Unix(), CPUCount: max(1, int(now.CPULimit)),
			CPUUsedPct: percent, MemUsed: now.Memory, MemTotal: now.MemoryLimit, DiskUsed: now.Disk, DiskTotal: now.DiskLimit,
		}
		return err
	})
	return m, err
}

var errBody = refused("body", "must be a JSON object")

// objectOf reads a body; none is an empty object.
func objectOf(body []byte) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(body) == 0 {
		return fields, nil
	}
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return nil, errBody
	}
	return fields, nil
}

// isNotFound reports whether something was not there.
func isNotFound(err error) bool { return errors.Is(err, &sdk.Error{Code: sdk.CodeNotFound}) }
