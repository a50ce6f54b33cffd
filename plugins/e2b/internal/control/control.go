// Package control is a client of E2B's control API: the calls that make, find and end
// sandboxes. It covers both generations of the API, finds out by itself which of them
// a server has, and repeats nothing: that is for who knows what a call means.
package control

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
)

// callTimeout is a little more than what the server allows itself for a call.
const callTimeout = 75 * time.Second

// Client makes calls. It may be used by several goroutines.
type Client struct {
	endpoint e2bhttp.Endpoint
	// recent says that the server lacks the old routes.
	recent atomic.Bool
}

// New makes a client for the API at a base URL, such as https://api.e2b.app.
func New(base, apiKey string, client *http.Client) *Client {
	return &Client{endpoint: e2bhttp.Endpoint{
		Base: strings.TrimRight(base, "/"), Client: client,
		Header: http.Header{"X-Api-Key": {apiKey}, "User-Agent": {"sandbox-broker"}},
	}}
}

// Network of a new sandbox.
type Network struct {
	AllowPublicTraffic *bool    `json:"allowPublicTraffic,omitempty"`
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
}

// NewSandbox is what a sandbox is made with.
type NewSandbox struct {
	TemplateID string            `json:"templateID"`
	Timeout    int64             `json:"timeout"` // seconds, always told: the defaults of the routes differ
	Metadata   map[string]string `json:"metadata,omitempty"`
	EnvVars    map[string]string `json:"envVars,omitempty"`
	Secure     bool              `json:"secure"` // without it, whoever knows the ID can drive the sandbox
	// AllowInternetAccess false cuts it off; nil leaves it to Network.
	AllowInternetAccess *bool    `json:"allow_internet_access,omitempty"`
	Network             *Network `json:"network,omitempty"`
}

// Sandbox is what it takes to talk to one.
type Sandbox struct {
	SandboxID          string `json:"sandboxID"`
	TemplateID         string `json:"templateID"`
	EnvdVersion        string `json:"envdVersion"`
	EnvdAccessToken    string `json:"envdAccessToken"`
	TrafficAccessToken string `json:"trafficAccessToken"`
	// Domain, if given, is where this one can be reached.
	Domain string `json:"domain"`
}

// Detail is what the API knows of a sandbox. Lists have no token and no domain.
type Detail struct {
	SandboxID       string            `json:"sandboxID"`
	TemplateID      string            `json:"templateID"`
	Metadata        map[string]string `json:"metadata"`
	State           string            `json:"state"`
	StartedAt       time.Time         `json:"startedAt"`
	EndAt           time.Time         `json:"endAt"`
	CPUCount        int64             `json:"cpuCount"`
	MemoryMB        int64             `json:"memoryMB"`
	EnvdVersion     string            `json:"envdVersion"`
	EnvdAccessToken string            `json:"envdAccessToken"`
	Domain          string            `json:"domain"`
}

// StatePaused is a Detail.State; the other is "running".
const StatePaused = "paused"

// Create makes a sandbox.
func (c *Client) Create(ctx context.Context, sandbox NewSandbox) (Sandbox, error) {
	return either(ctx, c, "/sandboxes", sandbox)
}

// Connect resumes a paused sandbox, or makes sure that one that runs does so for at
// least timeout.
func (c *Client) Connect(ctx context.Context, id string, timeout time.Duration) (Sandbox, error) {
	return either(ctx, c, "/sandboxes/"+id+"/connect", lifetime(timeout))
}

// either posts to a route that has two generations. The old one comes first: with
// everything told it means the same, and a server that lacks the new one may answer
// it with a status that says something else.
func either(ctx context.Context, c *Client, path string, in any) (Sandbox, error) {
	var made Sandbox
	var first error
	if !c.recent.Load() {
		first = c.call(ctx, http.MethodPost, path, in, &made)
		if !lacksRoute(first) {
			return made, first
		}
	}
	err := c.call(ctx, http.MethodPost, "/v2"+path, in, &made)
	switch {
	case err == nil:
		c.recent.Store(true)
	case lacksRoute(err):
		c.recent.Store(false) // it is the template or the sandbox that was not found
		if first != nil && ofRoute(err) {
			err = first // which has the reason
		}
	}
	return made, err
}

// ofRoute says that an error is about the path of a request, and not about what it asks
// for.
func ofRoute(err error) bool {
	e, ok := errors.AsType[*e2bhttp.Error](err)
	return ok && (e.Status != http.StatusNotFound || !e.Own || strings.HasPrefix(e.Message, "validation error"))
}

func lacksRoute(err error) bool {
	e, ok := errors.AsType[*e2bhttp.Error](err)
	return ok && (e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusGone)
}

// Get returns one sandbox.
func (c *Client) Get(ctx context.Context, id string) (Detail, error) {
	var detail Detail
	err := c.call(ctx, http.MethodGet, "/sandboxes/"+id, nil, &detail)
	return detail, err
}

// maxPages ends a list whose pages do not end.
const maxPages = 1000

// List returns the sandboxes that have all of the metadata, paused ones too.
func (c *Client) List(ctx context.Context, metadata map[string]string) ([]Detail, error) {
	query := url.Values{"limit": {"100"}, "state": {"running,paused"}, "metadata": {filter(metadata)}}
	var all []Detail
	for range maxPages {
		var page []Detail
		header, err := c.timed(ctx, http.MethodGet, "/v2/sandboxes?"+query.Encode(), nil, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		next := header.Get("X-Next-Token")
		if next == "" {
			return all, nil
		}
		query.Set("nextToken", next)
	}
	return nil, errors.New("the list of sandboxes has no end")
}

// filter encodes each key and value twice; the query encodes all of it once more.
func filter(metadata map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		pairs = append(pairs, escape(escape(key))+"="+escape(escape(metadata[key])))
	}
	return strings.Join(pairs, "&")
}

// escape writes a blank as %20, which everybody reads alike.
func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// Probe makes the cheapest call that shows whether the server is there and takes the
// key.
func (c *Client) Probe(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/v2/sandboxes?limit=1&state=running", nil, nil)
}

// Kill ends a sandbox, paused or not. An unknown one is an *e2bhttp.Error with the
// status 404.
func (c *Client) Kill(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/sandboxes/"+id, nil, nil)
}

// SetTimeout lets a sandbox live so long from now on.
func (c *Client) SetTimeout(ctx context.Context, id string, timeout time.Duration) error {
	return c.call(ctx, http.MethodPost, "/sandboxes/"+id+"/timeout", lifetime(timeout), nil)
}

// Pause freezes a sandbox. 409 means that it is paused already, or between states.
func (c *Client) Pause(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, "/sandboxes/"+id+"/pause", struct{}{}, nil)
}

func lifetime(d time.Duration) any {
	return struct {
		Timeout int64 `json:"timeout"`
	}{Seconds(d)}
}

// Seconds rounds up.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	_, err := c.timed(ctx, method, path, in, out)
	return err
}

func (c *Client) timed(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.endpoint.Call(ctx, method, path, in, out)
}
