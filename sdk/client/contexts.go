package client

import (
	"context"
	"net/http"
	"time"
)

// CreateContextRequest asks for a context.
type CreateContextRequest struct {
	Language string            `json:"language" minLength:"1" maxLength:"64" doc:"python or javascript, or what the provider has contexts for." example:"python"`
	Cwd      string            `json:"cwd,omitempty" minLength:"1" maxLength:"4096" doc:"The directory that it starts in, in the instance. Default: /workspace, which a relative one is below."`
	Env      map[string]string `json:"env,omitempty" maxProperties:"100" doc:"Environment variables, over those of the instance."`
}

// Context is an interpreter in an instance that keeps its state.
type Context struct {
	_         struct{}  `additionalProperties:"true"`
	ID        string    `json:"id" doc:"Of this instance's contexts." example:"python-1"`
	Language  string    `json:"language"`
	Cwd       string    `json:"cwd" doc:"Where it started."`
	CreatedAt time.Time `json:"created_at"`
	Busy      bool      `json:"busy" doc:"Whether code runs in it."`
}

// ContextList holds the contexts of an instance, oldest first.
type ContextList struct {
	_        struct{}  `additionalProperties:"true"`
	Contexts []Context `json:"contexts" nullable:"false"`
}

// CreateContext makes a context in an instance.
func (c *Client) CreateContext(ctx context.Context, id string, req CreateContextRequest) (Context, error) {
	return ask[Context](ctx, c, Request{Method: post, Path: below(id, "contexts"), Body: req})
}

// Contexts lists the contexts of an instance.
func (c *Client) Contexts(ctx context.Context, id string) (ContextList, error) {
	return ask[ContextList](ctx, c, Request{Method: get, Path: below(id, "contexts")})
}

// Context looks at a context.
func (c *Client) Context(ctx context.Context, id, name string) (Context, error) {
	return ask[Context](ctx, c, Request{Method: get, Path: below(id, "contexts", name)})
}

// RestartContext makes a context forget its state.
func (c *Client) RestartContext(ctx context.Context, id, name string) error {
	return c.tell(ctx, post, below(id, "contexts", name, "restart"), nil)
}

// DeleteContext ends a context.
func (c *Client) DeleteContext(ctx context.Context, id, name string) error {
	return c.tell(ctx, http.MethodDelete, below(id, "contexts", name), nil)
}
