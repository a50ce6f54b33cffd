package data

import (
	"context"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
)

// CreateSandbox asks for a sandbox, which may not be ready yet when the call returns.
func (c *Client) CreateSandbox(ctx context.Context, in agentrun.SandboxInput) (agentrun.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var s agentrun.Sandbox
	err := c.json(ctx, http.MethodPost, "/sandboxes", in, &s)
	return s, whole(err, s.SandboxID != "")
}

// whole is the error of a call whose answer must say something: a success without it is
// none.
func whole(err error, says bool) error {
	if err == nil && !says {
		err = &agentrun.Failure{Status: http.StatusBadGateway, Code: agentrun.InvalidAnswer, Message: "the answer does not say what it should"}
	}
	return err
}

// GetSandbox reads a sandbox.
func (c *Client) GetSandbox(ctx context.Context, id string) (agentrun.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var s agentrun.Sandbox
	err := c.json(ctx, http.MethodGet, path(id, ""), nil, &s)
	return s, whole(err, s.SandboxID != "")
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
