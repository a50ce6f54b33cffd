package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// CreateInstanceRequest asks for an instance.
type CreateInstanceRequest struct {
	SessionID    string            `json:"session_id,omitempty" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9_.-]+$" patternDescription:"letters, digits, _ . -" doc:"Your name for a piece of work. A session has one instance per provider; asking again returns it."`
	Language     string            `json:"language,omitempty" minLength:"1" maxLength:"64" doc:"What most of the code will be written in."`
	Template     string            `json:"template,omitempty" minLength:"1" maxLength:"64" doc:"What the instance is made for; beats language."`
	Provider     string            `json:"provider,omitempty" minLength:"1" maxLength:"64" doc:"A provider by its ID, if it shall not be the usual one."`
	Snapshot     string            `json:"snapshot,omitempty" minLength:"1" maxLength:"64" doc:"The ID of a snapshot to go on from. Provider and template are the snapshot's."`
	Requirements []string          `json:"requirements,omitempty" nullable:"false" maxItems:"200" doc:"Packages to install before it is answered, of the language, or of the template." example:"[\"numpy\"]"`
	Env          map[string]string `json:"env,omitempty" maxProperties:"100" doc:"Environment variables for every execution in it."`
	Labels       map[string]string `json:"labels,omitempty" maxProperties:"50" doc:"Your own notes, to find the instance by: GET /api/v1/instances?label=name=value."`
	TTL          float64           `json:"ttl,omitempty" exclusiveMinimum:"0" doc:"Seconds that it lives from now on, and again from the end of each execution. The operator sets the default and the maximum lifetime, which neither use nor renewal exceeds."`
	Idle         float64           `json:"idle,omitempty" exclusiveMinimum:"0" doc:"Seconds without use after which it is destroyed, even if its ttl would allow more. The operator sets the maximum, which is also the default."`
	WaitMS       int64             `json:"wait_ms,omitempty" minimum:"0" doc:"Milliseconds that the request may wait for its turn when max_concurrent, max_instances or the provider has no room. Without it it is refused at once. The operator sets the maximum."`
	Languages    []string          `json:"languages,omitempty" nullable:"false" maxItems:"20" doc:"Languages that its provider must run." example:"[\"python\",\"bash\"]"`
	Volumes      []VolumeMount     `json:"volumes,omitempty" nullable:"false" maxItems:"16" doc:"Volumes that code finds in it. They say which provider it is on."`
	Capabilities []string          `json:"capabilities,omitempty" nullable:"false" maxItems:"20" doc:"What its provider must be capable of, as GET /api/v1/providers lists it." example:"[\"files\",\"pause\"]"`
	Network      *Network          `json:"network,omitempty" doc:"A part of what the operator allows you to reach; without it all of that, where the provider has networks."`
}

// Network says what an instance may reach, of what its tenant may.
type Network struct {
	None           bool          `json:"none,omitempty" doc:"Whether it shall reach nothing. It goes with nothing else."`
	Allow          []NetworkRule `json:"allow,omitempty" nullable:"false" maxItems:"200" doc:"Hosts. Each must be within what the operator allows. None stands for all of that."`
	MaxConnections int64         `json:"max_connections,omitempty" minimum:"1" maximum:"100000" doc:"Connections at once, if that shall be fewer than the operator allows."`
	MaxBytes       int64         `json:"max_bytes,omitempty" minimum:"1" doc:"Bytes that it may send, and as many that it may receive, in its life."`
}

// NetworkRule is a host and what may be asked of it.
type NetworkRule struct {
	Host      string   `json:"host" minLength:"1" maxLength:"255" doc:"A name in small letters, *. before one for all below it, * for every name, or an address." example:"\"pypi.org\""`
	Ports     []int64  `json:"ports,omitempty" nullable:"false" maxItems:"50" doc:"80 and 443 unless given."`
	Methods   []string `json:"methods,omitempty" nullable:"false" maxItems:"50" doc:"Methods of HTTP; all that the operator allows unless given." example:"[\"GET\"]"`
	Paths     []string `json:"paths,omitempty" nullable:"false" maxItems:"50" doc:"Paths, or /x/* for all below one; all that the operator allows unless given." example:"[\"/simple/*\"]"`
	WebSocket bool     `json:"websocket,omitempty" doc:"Whether requests that are read may ask for a WebSocket."`
	TCP       bool     `json:"tcp,omitempty" doc:"Whether any protocol may be spoken there."`
}

// RenewInstanceRequest asks for more time, or less.
type RenewInstanceRequest struct {
	TTL float64 `json:"ttl,omitempty" exclusiveMinimum:"0" doc:"Seconds from now until it expires; the instance's own ttl unless given."`
}

// Instance is one live sandbox.
type Instance struct {
	_          struct{}          `additionalProperties:"true"`
	ID         string            `json:"id" doc:"{tenant}:{session}:{instance}; in a path the colons may be plain or %3A." example:"acme:report-7:k3v9x2m4q8w1z5y7b6n0"`
	SessionID  string            `json:"session_id"`
	Provider   string            `json:"provider"`
	Template   string            `json:"template"`
	Metadata   map[string]string `json:"metadata,omitempty" doc:"Facts from the provider, such as a region."`
	Labels     map[string]string `json:"labels,omitempty" doc:"As its creator gave them."`
	State      string            `json:"state" enum:"running,paused" doc:"Values may be added."`
	CreatedAt  time.Time         `json:"created_at"`
	LastUsedAt time.Time         `json:"last_used_at"`
	ExpiresAt  time.Time         `json:"expires_at" doc:"When it is destroyed unless it is used or renewed before. Executions that run then may finish."`
	TTL        float64           `json:"ttl" doc:"Seconds until expires_at that the end of an execution leaves at least, within the maximum lifetime."`
	Idle       float64           `json:"idle" doc:"Seconds after last_used_at until it is destroyed, if that comes before expires_at."`
	Executions int               `json:"executions" doc:"Executions in progress."`
	FrontDoor  string            `json:"front_door,omitempty" doc:"The front door that it was made by; absent for this API."`
	From       string            `json:"from,omitempty" doc:"The ID of the snapshot that it goes on from, or of the instance that it is a fork of; absent for a fresh one."`
	Volumes    []VolumeMount     `json:"volumes,omitempty" nullable:"false" doc:"Volumes that it has."`
	Routing    *Routing          `json:"routing,omitempty" doc:"Why it is on this provider."`
}

// InstanceList holds live instances of the tenant, in the order of their IDs.
type InstanceList struct {
	_         struct{}   `additionalProperties:"true"`
	Instances []Instance `json:"instances" nullable:"false"`
	Next      string     `json:"next,omitempty" doc:"If there are more: what to give as after for the next page."`
}

// InstanceMetrics is what an instance uses. What the provider does not know is
// absent.
type InstanceMetrics struct {
	_             struct{}   `additionalProperties:"true"`
	MeasuredAt    *time.Time `json:"measured_at,omitempty"`
	CPUTime       float64    `json:"cpu_time,omitempty" doc:"Seconds of processor time since the instance was made."`
	CPULimit      float64    `json:"cpu_limit,omitempty" doc:"In processors."`
	MemoryMB      float64    `json:"memory_mb,omitempty"`
	MemoryLimitMB float64    `json:"memory_limit_mb,omitempty"`
	DiskMB        *float64   `json:"disk_mb,omitempty" doc:"Of what the code can write to."`
	DiskLimitMB   float64    `json:"disk_limit_mb,omitempty"`
	Processes     *int64     `json:"processes,omitempty" doc:"With threads; an interpreter that waits for code is among them."`
	ProcessLimit  int64      `json:"process_limit,omitempty"`
}

// Provider is something that can run code.
type Provider struct {
	_            struct{}          `additionalProperties:"true"`
	ID           string            `json:"id" doc:"Its label in the configuration."`
	Plugin       string            `json:"plugin"`
	Version      string            `json:"version"`
	Summary      string            `json:"summary"`
	Active       bool              `json:"active" doc:"Used when a request names none."`
	Languages    []string          `json:"languages" nullable:"false"`
	Templates    []Template        `json:"templates" nullable:"false"`
	Capabilities []string          `json:"capabilities" nullable:"false"`
	State        string            `json:"state" doc:"ready, or a word that says why not." example:"ready"`
	Reason       string            `json:"reason,omitempty" doc:"Why it is not ready."`
	Details      map[string]string `json:"details,omitempty" doc:"Facts for people."`
}

// Template is what an instance can be made for.
type Template struct {
	_           struct{} `additionalProperties:"true"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Languages   []string `json:"languages" nullable:"false"`
}

// ProviderList holds the providers that the tenant may use.
type ProviderList struct {
	_         struct{}   `additionalProperties:"true"`
	Providers []Provider `json:"providers" nullable:"false"`
}

// Usage is what a tenant has used and may use.
type Usage struct {
	_       struct{}    `additionalProperties:"true"`
	Tenant  string      `json:"tenant"`
	Limits  []UsageLine `json:"limits" nullable:"false" doc:"All that is counted, limited or not, and the limits of each instance."`
	Waiting int         `json:"waiting" doc:"Requests that wait for their turn."`
}

// UsageLine is what a tenant has used of one limit.
type UsageLine struct {
	_        struct{}   `additionalProperties:"true"`
	Name     string     `json:"name" doc:"As the operator's configuration names it. Limits may be added." example:"executions_per_day"`
	Used     *float64   `json:"used,omitempty" doc:"With what is reserved for what is in progress. Absent for limits of each instance."`
	Limit    *float64   `json:"limit,omitempty" doc:"Absent when there is none."`
	ResetsAt *time.Time `json:"resets_at,omitempty" doc:"When used begins anew; absent where it does not."`
}

// Health says that the process is alive or ready.
type Health struct {
	_        struct{}   `additionalProperties:"true"`
	Status   string     `json:"status" enum:"ok,ready"`
	NotReady []NotReady `json:"not_ready,omitempty" nullable:"false" doc:"Of the active provider and its fallback, those that take no work at the moment."`
}

// NotReady is a provider that takes no work.
type NotReady struct {
	_        struct{} `additionalProperties:"true"`
	Provider string   `json:"provider"`
	State    string   `json:"state" example:"restarting"`
	Reason   string   `json:"reason,omitempty"`
}

// CreateInstance makes an instance, or returns the one that the session has.
func (c *Client) CreateInstance(ctx context.Context, req CreateInstanceRequest) (Instance, error) {
	return ask[Instance](ctx, c, Request{Method: post, Path: pathInstances, Body: req})
}

// Instances lists a page of instances. The query may have label, session_id, provider,
// limit and after.
func (c *Client) Instances(ctx context.Context, query url.Values) (InstanceList, error) {
	return ask[InstanceList](ctx, c, Request{Method: get, Path: pathInstances, Query: query})
}

// Instance looks at an instance.
func (c *Client) Instance(ctx context.Context, id string) (Instance, error) {
	return ask[Instance](ctx, c, Request{Method: get, Path: below(id)})
}

// RenewInstance moves the end of an instance.
func (c *Client) RenewInstance(ctx context.Context, id string, req RenewInstanceRequest) (Instance, error) {
	return ask[Instance](ctx, c, Request{Method: post, Path: below(id, "renew"), Body: req})
}

// SetNetwork has an instance reach another part of what its tenant may from now on. What it may
// not reach any more is cut off when this returns.
func (c *Client) SetNetwork(ctx context.Context, id string, req Network) (Instance, error) {
	return ask[Instance](ctx, c, Request{Method: http.MethodPut, Path: below(id, "network"), Body: req})
}

// PauseInstance has an instance stand still.
func (c *Client) PauseInstance(ctx context.Context, id string) (Instance, error) {
	return ask[Instance](ctx, c, Request{Method: post, Path: below(id, "pause")})
}

// ResumeInstance lets a paused instance go on.
func (c *Client) ResumeInstance(ctx context.Context, id string) (Instance, error) {
	return ask[Instance](ctx, c, Request{Method: post, Path: below(id, "resume")})
}

// DestroyInstance destroys an instance.
func (c *Client) DestroyInstance(ctx context.Context, id string) error {
	return c.tell(ctx, http.MethodDelete, below(id), nil)
}

// Metrics says what an instance uses.
func (c *Client) Metrics(ctx context.Context, id string) (InstanceMetrics, error) {
	return ask[InstanceMetrics](ctx, c, Request{Method: get, Path: below(id, "metrics")})
}

// MetricsEvents does so again and again. The query may have interval_ms.
func (c *Client) MetricsEvents(ctx context.Context, id string, query url.Values) (*Events, error) {
	return c.stream(ctx, Request{Method: get, Path: below(id, "metrics"), Query: query})
}

// Providers lists the providers that the tenant may use.
func (c *Client) Providers(ctx context.Context) (ProviderList, error) {
	return ask[ProviderList](ctx, c, Request{Method: get, Path: "/api/v1/providers"})
}

// Usage says what the tenant has used and may use.
func (c *Client) Usage(ctx context.Context) (Usage, error) {
	return ask[Usage](ctx, c, Request{Method: get, Path: "/api/v1/usage"})
}

// Ready asks whether the broker takes work.
func (c *Client) Ready(ctx context.Context) (Health, error) {
	return ask[Health](ctx, c, Request{Method: get, Path: "/readyz"})
}
