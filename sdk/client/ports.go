package client

import (
	"context"
	"strconv"
	"time"
)

// CreatePreviewRequest asks for a link.
type CreatePreviewRequest struct {
	TTL float64 `json:"ttl,omitempty" exclusiveMinimum:"0" doc:"Seconds that the link is valid, 86400 at most; 600 unless given."`
}

// Preview is a link to a port of an instance.
type Preview struct {
	_         struct{}  `additionalProperties:"true"`
	URL       string    `json:"url" doc:"For a browser, at the address that this request was sent to. Who has it needs no token: treat it as a secret."`
	HostURL   string    `json:"host_url,omitempty" doc:"The same with a host of its own, where the operator has a domain for that: for programs that must stand at the root of an address. As much a secret."`
	Path      string    `json:"path" doc:"The URL's path, for those who reach the broker by another address or by HTTPS."`
	Port      int       `json:"port"`
	ExpiresAt time.Time `json:"expires_at"`
}

// CreatePreview makes a link to a port of an instance.
func (c *Client) CreatePreview(ctx context.Context, id string, port int, req CreatePreviewRequest) (Preview, error) {
	return ask[Preview](ctx, c, Request{Method: post, Path: below(id, "ports", strconv.Itoa(port), "preview"), Body: req})
}

// Port is the path, for Do, at which the program is that listens on a port of an
// instance. What follows it is passed on.
func Port(id string, port int) string { return below(id, "ports", strconv.Itoa(port)) + "/" }
