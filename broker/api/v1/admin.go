package v1

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Providers is what administrators ask about providers; admin.Service is it.
type Providers interface {
	Providers() []admin.Provider
	Available(ctx context.Context) ([]admin.Provider, error)
	Provider(ctx context.Context, label string) (admin.Provider, error)
}

// maxLastWords is how much of a dead plugin's standard error is shown, in bytes.
const maxLastWords = 8 << 10

// adminRoutes are for administrators, who are no tenant: about providers, and about the
// instances of all tenants.
type adminRoutes struct {
	providers Providers
	instances Instances
}

func (h adminRoutes) register(a *rest.API) {
	const path = pathAdmin + "/providers"
	const allInstances, oneInstance = pathAdmin + "/instances", pathAdmin + "/instances/{id}"
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: path, ID: "adminListProviders", Tag: tagAdmin, Admin: true,
		Summary: "How the providers are",
		Details: "Those of the configuration, and behind them the plugins that are installed and that no block runs, as not_configured.",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, func(ctx context.Context, _ rest.Call[rest.None]) (int, client.AdminProviderList, error) {
		list := client.AdminProviderList{Data: []client.AdminProvider{}}
		all, err := h.providers.Available(ctx)
		if err != nil {
			return 0, client.AdminProviderList{}, err
		}
		for _, p := range all {
			list.Data = append(list.Data, adminProviderOf(p))
		}
		return http.StatusOK, list, nil
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: path + "/{label}", ID: "adminGetProvider", Tag: tagAdmin, Admin: true,
		Summary: "How one provider is",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeNotFound},
	}, func(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminProviderAnswer, error) {
		p, err := h.providers.Provider(ctx, c.Path["label"])
		if err != nil {
			return 0, client.AdminProviderAnswer{}, err
		}
		return http.StatusOK, client.AdminProviderAnswer{Data: adminProviderOf(p)}, nil
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: allInstances, ID: "adminListInstances", Tag: tagAdmin, Admin: true,
		Summary: "List the instances of all tenants",
		Query: []rest.Parameter{
			{Name: "tenant", Doc: "Only those of this tenant."},
			{Name: "session_id", Doc: "Only those of sessions of this name."},
			{Name: "provider", Doc: "Only those of this provider."},
			{Name: "state", Doc: "Only those that are running, or those that are paused."},
			{Name: "text", Doc: "Only those with this in their ID, which has tenant and session, or in their template, in whatever case."},
			{Name: "limit", Kind: rest.Integer, Least: 1, Most: maxPage, Doc: "At most so many; 100 unless given."},
			{Name: "after", Doc: "Only those behind this ID: next of the page before."},
		},
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, h.adminListInstances)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: oneInstance, ID: "adminGetInstance", Tag: tagAdmin, Admin: true,
		Summary: "Look at an instance of any tenant",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeNotFound},
	}, func(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminInstanceAnswer, error) {
		info, err := h.instances.Inspect(ctx, c.Path["id"])
		if err != nil {
			return 0, client.AdminInstanceAnswer{}, err
		}
		return http.StatusOK, client.AdminInstanceAnswer{Data: adminInstanceOf(info)}, nil
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: oneInstance, ID: "adminKillInstance", Tag: tagAdmin, Admin: true,
		Summary: "Destroy an instance of any tenant",
		Details: "Executions in it end at once, whether or not the provider answers, and are answered as cancelled by an administrator. " +
			"After an error the instance is out of use; try again, or leave it to the broker.",
		Success: []int{http.StatusNoContent}, Codes: append(providerCodes(), sdk.CodeNotFound),
	}, func(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
		return http.StatusNoContent, rest.None{}, h.instances.Kill(ctx, c.Path["id"])
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: oneInstance + "/metrics", ID: "adminInstanceMetrics", Tag: tagAdmin, Admin: true,
		Summary: "What an instance of any tenant uses",
		Details: "Now. It is no use of the instance, which ends in its time as if nobody had looked.",
		Success: []int{http.StatusOK}, Codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, func(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminInstanceMetrics, error) {
		m, err := h.instances.Measure(ctx, c.Path["id"])
		return http.StatusOK, client.AdminInstanceMetrics{Data: metricsOf(m)}, err
	})
}

func adminProviderOf(p admin.Provider) client.AdminProvider {
	d := p.Description
	answer := client.AdminProvider{
		ID:                 p.Label,
		Name:               titleOf(p.Label),
		Description:        d.Summary,
		Icon:               d.Icon,
		Tags:               append([]string{}, d.Tags...),
		Active:             p.Active,
		SupportedLanguages: words(d.Languages),
		Templates:          []client.Template{},
		Capabilities:       words(d.Capabilities),
		ConfigSchema:       map[string]client.AdminField{},
		Plugin: client.AdminPlugin{
			Name: d.Name, Version: d.Version, File: p.Executable.Name, Path: p.Executable.Path,
			SHA256: p.Executable.SHA256, Pinned: p.Executable.Pinned,
		},
		State:    string(p.State.Phase),
		Healthy:  p.State.Healthy,
		Reason:   p.State.Reason,
		Since:    p.State.Since.UTC(),
		Restarts: p.State.Restarts,
		Draining: p.Draining,
		PID:      p.State.PID,
		Details:  p.State.Details,
	}
	for _, t := range d.Templates {
		answer.Templates = append(answer.Templates, client.Template{Name: t.Name, Description: t.Description, Languages: words(t.Languages)})
	}
	for i, f := range d.Schema {
		answer.ConfigSchema[f.Name] = adminFieldOf(i, f)
	}
	if err := p.State.LastError; err != nil {
		answer.LastError = &client.AdminFailure{Message: err.Error(), At: p.State.FailedAt.UTC(), Stderr: lastBytes(pluginhost.Stderr(err), maxLastWords)}
	}
	answer.Circuit = circuitOf(p.Standing)
	if next := p.State.NextTry; !next.IsZero() {
		answer.NextTry = next.UTC()
	}
	return answer
}

func adminFieldOf(position int, f sdk.Field) client.AdminField {
	field := client.AdminField{
		Position: position, Type: string(f.Type), Required: f.Required, Secret: f.Secret, FileOnly: f.FileOnly,
		Label: f.Label, Description: f.Description, Placeholder: f.Placeholder,
		Options: slices.Clone(f.Options), Min: f.Min, Max: f.Max, Pattern: f.Pattern,
	}
	if f.Items != nil {
		field.Items = &client.AdminItems{Type: string(f.Items.Type), Options: slices.Clone(f.Items.Options), Min: f.Items.Min, Max: f.Items.Max, Pattern: f.Items.Pattern}
	}
	if f.Type == sdk.TypeBlock {
		field.Repeated, field.Fields = f.Repeated, map[string]client.AdminField{}
		for i, inner := range f.Fields {
			inner.FileOnly = inner.FileOnly || f.FileOnly
			field.Fields[inner.Name] = adminFieldOf(i, inner)
		}
	}
	if f.Label == "" {
		field.Label = titleOf(f.Name)
	}
	if f.Secret {
		return field // a default would be one
	}
	field.Default = f.Default
	if seconds, ok := f.Default.(float64); ok && f.Type == sdk.TypeDuration { // as it came over the wire
		field.Default = time.Duration(seconds * float64(time.Second)).String()
	} else if d, ok := f.Default.(time.Duration); ok {
		field.Default = d.String()
	}
	return field
}

// titleOf makes "Self Managed" of "self_managed".
func titleOf(name string) string {
	list := strings.FieldsFunc(name, func(r rune) bool { return r == '_' })
	for i, w := range list {
		list[i] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(list, " ")
}

// lastBytes returns the end of a text, from the beginning of a line if it is cut.
func lastBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	if _, rest, ok := strings.Cut(text, "\n"); ok {
		return rest
	}
	return fmt.Sprintf("…%s", strings.ToValidUTF8(text, ""))
}

func (h adminRoutes) adminListInstances(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminInstanceList, error) {
	req := instance.ListRequest{
		Session: c.Query.Text("session_id"), Provider: c.Query.Text("provider"), Text: c.Query.Text("text"),
		Limit: int(c.Query.Integer("limit", defaultPage)), After: c.Query.Text("after"),
	}
	switch state := c.Query.Text("state"); state {
	case "":
	case stateRunning, statePaused:
		req.Paused = new(state == statePaused)
	default:
		return 0, client.AdminInstanceList{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "state", "must be %s or %s", stateRunning, statePaused)
	}
	page, err := h.instances.ListAllEverywhere(ctx, c.Query.Text("tenant"), req)
	list := client.AdminInstanceList{Data: []client.AdminInstance{}}
	if list.Silent, err = silent(err); err != nil {
		return 0, client.AdminInstanceList{}, err
	}
	for _, info := range page.Instances {
		list.Data = append(list.Data, adminInstanceOf(info))
	}
	if page.More {
		list.Next = list.Data[len(list.Data)-1].ID
	}
	return http.StatusOK, list, nil
}

func adminInstanceOf(info instance.Info) client.AdminInstance {
	return client.AdminInstance{Tenant: info.ID.Tenant, Broker: info.Broker, Instance: instanceOf(info)}
}
