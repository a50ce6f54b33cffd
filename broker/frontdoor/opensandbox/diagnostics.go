package opensandbox

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// diagnosticsAnswer holds what there is to be known of a sandbox, in the answer itself.
type diagnosticsAnswer struct {
	SandboxID   string `json:"sandboxId"`
	Kind        string `json:"kind"`
	Scope       string `json:"scope"`
	Delivery    string `json:"delivery"`
	ContentType string `json:"contentType"`
	Content     string `json:"content"`
	Truncated   bool   `json:"truncated"`
}

// scopes are those of OpenSandbox.
var scopes = []string{"container", "runtime", "lifecycle", "network", "process", "all"}

// diagnostics tells the events of a sandbox's life. There are no logs of the container,
// which is the provider's; programs have logs of their own, by their commands.
func (d *Door) diagnostics(ctx context.Context, c rest.Call[rest.None]) (int, diagnosticsAnswer, error) {
	kind := c.Path["kind"]
	if kind != "logs" && kind != "events" {
		return 0, diagnosticsAnswer{}, sdk.Errorf(sdk.CodeNotFound, "There are diagnostics of logs and of events.")
	}
	query, err := frontdoor.Query(c.RawQuery)
	if err != nil {
		return 0, diagnosticsAnswer{}, refused("query", "is malformed")
	}
	scope := query.Get("scope")
	if !query.Has("scope") {
		scope = "all"
	}
	if !slices.Contains(scopes, scope) {
		return 0, diagnosticsAnswer{}, refused("scope", "DIAGNOSTICS_SCOPE_UNSUPPORTED: must be one of %s", strings.Join(scopes, ", "))
	}
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, diagnosticsAnswer{}, err
	}
	answer := diagnosticsAnswer{
		SandboxID: info.ID.Instance, Kind: kind, Scope: scope, Delivery: "inline", ContentType: "text/plain; charset=utf-8",
	}
	if kind == "events" && (scope == "lifecycle" || scope == "all") {
		state := stateRunning
		if info.Paused {
			state = statePaused
		}
		answer.Content = fmt.Sprintf("%s created by provider %s\n%s %s\n%s ends unless it is renewed\n",
			info.CreatedAt.UTC().Format(time.RFC3339), info.Provider, time.Now().UTC().Format(time.RFC3339), state, info.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return http.StatusOK, answer, nil
}
