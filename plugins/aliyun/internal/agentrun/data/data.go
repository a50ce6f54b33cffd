// Package data is the client of AgentRun's data plane: sandboxes, and the commands and
// files in them. Its signature, host and paths are others than those of the control
// plane, and no SDK has it for Go.
package data

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/sign"
)

// callTimeout bounds calls that have no reason to take long.
const callTimeout = 10 * time.Second

// Client speaks to the data plane of one account and region.
type Client struct {
	endpoint    *url.URL
	region      string
	credentials Credentials
	http        *http.Client
}

// Credentials are where keys come from.
type Credentials interface {
	Get(ctx context.Context) (sign.Credentials, error)
	// Renew fetches others in place of some that were refused, and says whether to try
	// again.
	Renew(ctx context.Context) bool
}

// New makes a client for an endpoint such as
// https://1234567890123456-ram.agentrun-data.cn-hangzhou.aliyuncs.com.
func New(endpoint *url.URL, region string, credentials Credentials, transport http.RoundTripper) *Client {
	return &Client{endpoint, region, credentials, &http.Client{
		Transport: transport,
		// The signature would go wherever a redirect says.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func path(id, rest string) string { return "/sandboxes/" + url.PathEscape(id) + rest }

// json sends a value, or nothing for nil, and reads the answer.
func (c *Client) json(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	contentType := ""
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
		contentType = "application/json"
	}
	return c.send(ctx, method, path, contentType, body, out)
}

// open sends a request; whoever gets the answer closes it.
func (c *Client) open(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	// The service knows "/sandboxes…" and nothing like it: one slash more is another path.
	req, err := http.NewRequestWithContext(ctx, method, c.endpoint.Scheme+"://"+c.endpoint.Host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	keys, err := c.credentials.Get(ctx)
	if err != nil {
		return nil, err
	}
	sign.Data(req, keys, c.region, time.Now())
	return c.http.Do(req)
}

// send repeats a call whose credentials were refused as expired: it has done nothing.
func (c *Client) send(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	err := c.sendOnce(ctx, method, path, contentType, body, out)
	if f, ok := errors.AsType[*agentrun.Failure](err); ok && f.Expired() && c.credentials.Renew(ctx) {
		return c.sendOnce(ctx, method, path, contentType, body, out)
	}
	return err
}

func (c *Client) sendOnce(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	resp, err := c.open(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, agentrun.MaxAnswer+1))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if len(answer) > agentrun.MaxAnswer {
		return errors.New("the answer is too long")
	}
	return agentrun.Read(resp.StatusCode, resp.Header, answer, out)
}
