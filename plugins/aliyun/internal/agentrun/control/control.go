// Package control is the client of AgentRun's control plane: templates, and the list
// of sandboxes. It is the only package that imports the SDK of Aliyun, which is at the
// end of its road: nothing of it is in an exported name.
//
// The SDK builds requests and signs them in a way that Aliyun has discontinued;
// resign.go takes that signature off again and puts the present one on.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	aliyun "github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
)

const (
	version = "2025-09-10"
	// callTimeout bounds one call whose context has no earlier end.
	callTimeout = 10 * time.Second
	// pageSize of lists; the service allows 1000.
	pageSize = 500
)

// Client speaks to the control plane of one region.
type Client struct {
	endpoint    *url.URL
	region      string
	credentials *Credentials
	transport   http.RoundTripper
}

// New makes a client for an endpoint such as https://agentrun.cn-hangzhou.aliyuncs.com.
func New(endpoint *url.URL, region string, credentials *Credentials, transport http.RoundTripper) *Client {
	return &Client{endpoint, region, credentials, transport}
}

// GetTemplate reads a template by its name.
func (c *Client) GetTemplate(ctx context.Context, name string) (agentrun.Template, error) {
	var t agentrun.Template
	err := c.call(ctx, request{"GetTemplate", http.MethodGet, "/templates/" + url.PathEscape(name), nil, nil}, &t)
	return t, err
}

// CreateTemplate makes a template, which is not ready yet when the call returns.
func (c *Client) CreateTemplate(ctx context.Context, in agentrun.TemplateInput) (agentrun.Template, error) {
	var t agentrun.Template
	err := c.call(ctx, request{"CreateTemplate", http.MethodPost, "/templates", nil, in}, &t)
	return t, err
}

// Ping makes the cheapest call that needs good credentials.
func (c *Client) Ping(ctx context.Context) error {
	return c.call(ctx, request{"ListTemplates", http.MethodGet, "/templates", url.Values{"pageNumber": {"1"}, "pageSize": {"1"}}, nil}, nil)
}

// ListSandboxes returns a page of the sandboxes of the account and region, those that have
// ended lately too, and the token for the next one. A sandbox that was made or has ended
// a moment ago may be missing, or be there still.
func (c *Client) ListSandboxes(ctx context.Context, token string) (agentrun.SandboxPage, error) {
	query := url.Values{"maxResults": {strconv.Itoa(pageSize)}}
	if token != "" {
		query.Set("nextToken", token)
	}
	var page agentrun.SandboxPage
	err := c.call(ctx, request{"ListSandboxes", http.MethodGet, "/sandboxes", query, nil}, &page)
	return page, err
}

// PauseSandbox freezes a sandbox, which takes a while.
func (c *Client) PauseSandbox(ctx context.Context, id string) error {
	return c.call(ctx, request{"PauseSandbox", http.MethodPut, "/sandboxes/" + url.PathEscape(id) + "/pause", nil, nil}, nil)
}

// ResumeSandbox has a paused one go on, which takes a while too.
func (c *Client) ResumeSandbox(ctx context.Context, id string) error {
	return c.call(ctx, request{"ResumeSandbox", http.MethodPut, "/sandboxes/" + url.PathEscape(id) + "/resume", nil, nil}, nil)
}

type request struct {
	action, method, path string
	query                url.Values
	body                 any
}

// call repeats a call whose credentials were refused as expired: it has done nothing.
func (c *Client) call(ctx context.Context, r request, value any) error {
	err := c.callOnce(ctx, r, value)
	if f, ok := errors.AsType[*agentrun.Failure](err); ok && f.Expired() && c.credentials.Renew(ctx) {
		return c.callOnce(ctx, r, value)
	}
	return err
}

// callOnce makes one call, with a client of its own: those of the SDK cannot be shared by
// goroutines, and cost next to nothing.
func (c *Client) callOnce(ctx context.Context, r request, value any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	keys, err := c.credentials.Get(ctx)
	if err != nil {
		return err
	}
	resign := &resigner{ctx: ctx, host: c.endpoint.Host, keys: keys, next: c.transport}
	config := aliyun.NewConfig()
	config.Scheme, config.Transport = c.endpoint.Scheme, resign
	config.Timeout = callTimeout + time.Second // ctx ends first, and says why
	// The keys only satisfy the SDK: resign signs.
	client, err := aliyun.NewClientWithOptions(c.region, config, credentials.NewAccessKeyCredential(keys.AccessKeyID, keys.AccessKeySecret))
	if err != nil {
		return err
	}
	req := requests.NewCommonRequest()
	req.Method, req.Scheme = r.method, c.endpoint.Scheme
	req.Domain, req.Port = c.endpoint.Hostname(), c.endpoint.Port()
	req.Product, req.Version, req.ApiName = "AgentRun", version, r.action
	req.PathPattern = "/" + version + r.path
	req.SetReadTimeout(config.Timeout)
	for name := range r.query {
		req.QueryParams[name] = r.query.Get(name)
	}
	if r.body != nil {
		body, err := json.Marshal(r.body)
		if err != nil {
			return err
		}
		req.SetContentType("application/json")
		req.SetContent(body)
	}
	// It panics at answers whose code is not a string.
	defer func() {
		if cause := recover(); cause != nil {
			err = resign.answer(nil)
			if err == nil {
				err = fmt.Errorf("the SDK of Aliyun gave up: %v", cause)
			}
		}
	}()
	_, err = client.ProcessCommonRequest(req)
	if _, ok := errors.AsType[*sdkerrors.ServerError](err); err != nil && !ok {
		return err
	}
	// The SDK reads only half of the service's failures: what came over the wire tells all.
	return resign.answer(value)
}
