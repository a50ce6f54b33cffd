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
	"mime/multipart"
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
	credentials func(context.Context) (sign.Credentials, error)
	http        *http.Client
}

// New makes a client for an endpoint such as
// https://1234567890123456-ram.agentrun-data.cn-hangzhou.aliyuncs.com.
func New(endpoint *url.URL, region string, credentials func(context.Context) (sign.Credentials, error), transport http.RoundTripper) *Client {
	return &Client{endpoint, region, credentials, &http.Client{
		Transport: transport,
		// The signature would go wherever a redirect says.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// CreateSandbox asks for a sandbox, which may not be ready yet when the call returns.
func (c *Client) CreateSandbox(ctx context.Context, in agentrun.SandboxInput) (agentrun.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var s agentrun.Sandbox
	err := c.json(ctx, http.MethodPost, "/sandboxes", in, &s)
	return s, err
}

// GetSandbox reads a sandbox.
func (c *Client) GetSandbox(ctx context.Context, id string) (agentrun.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var s agentrun.Sandbox
	err := c.json(ctx, http.MethodGet, path(id, ""), nil, &s)
	return s, err
}

// DeleteSandbox ends a sandbox.
func (c *Client) DeleteSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*callTimeout)
	defer cancel()
	return c.json(ctx, http.MethodDelete, path(id, ""), nil, nil)
}

// Ready says whether a sandbox can run code.
func (c *Client) Ready(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var health struct {
		Status string `json:"status"`
	}
	err := c.json(ctx, http.MethodGet, path(id, "/health"), nil, &health)
	return health.Status == "ok", err
}

// RunCommand runs a command of the shell and waits for its end. The service stops it
// after timeout, of whole seconds up to 30.
func (c *Client) RunCommand(ctx context.Context, id, command, cwd string, timeout time.Duration) (agentrun.CommandResult, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+5*time.Second)
	defer cancel()
	var r agentrun.CommandResult
	err := c.json(ctx, http.MethodPost, path(id, "/processes/cmd"), map[string]any{"command": command, "cwd": cwd, "timeout": int(timeout.Seconds())}, &r)
	return r, err
}

// Upload writes a file.
func (c *Client) Upload(ctx context.Context, id, file string, content []byte) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	err := w.WriteField("path", file)
	if err == nil {
		var part io.Writer
		if part, err = w.CreateFormFile("file", "content"); err == nil {
			_, err = part.Write(content)
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return c.send(ctx, http.MethodPost, path(id, "/filesystem/upload"), w.FormDataContentType(), form.Bytes(), nil)
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

func (c *Client) send(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.endpoint.JoinPath().String()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	keys, err := c.credentials(ctx)
	if err != nil {
		return err
	}
	sign.Data(req, keys, c.region, time.Now())
	resp, err := c.http.Do(req)
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
