package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// AdminRestoreRequest asks for the files of an earlier generation.
type AdminRestoreRequest struct {
	DryRun bool `json:"dry_run,omitempty" doc:"Only say what would change. Plugins are started to check their settings, and not configured."`
}

// Restore brings in force the files of an earlier generation.
func (a Admin) Restore(ctx context.Context, generation int, req AdminRestoreRequest) (AdminChanged, error) {
	return ask[AdminChanged](ctx, a.client, Request{Method: post, Path: adminPath("generations", strconv.Itoa(generation), "restore"), Body: req})
}

// PreviewRemoval says what RemoveTenant would do.
func (a Admin) PreviewRemoval(ctx context.Context, name string) (AdminTenantChanged, error) {
	return ask[AdminTenantChanged](ctx, a.client, Request{Method: http.MethodDelete, Path: adminPath("tenants", name), Query: url.Values{"dry_run": {"true"}}})
}
