package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Admin is what administrators ask; admin.Service is it.
type Admin interface {
	Enabled() bool
	Authenticate(token string) bool
	Providers() []admin.Provider
	Available(ctx context.Context) ([]admin.Provider, error)
	Provider(ctx context.Context, label string) (admin.Provider, error)
}

// maxLastWords is how much of a dead plugin's standard error is shown, in bytes.
const maxLastWords = 8 << 10

// adminRoutes are for administrators, who are no tenant.
func (s *Server) adminRoutes() {
	const path = "/api/admin/sandbox/providers"
	register(s, operation{
		method: http.MethodGet, path: path, id: "adminListProviders", tag: tagAdmin, admin: true,
		summary: "How the providers are",
		details: "Those of the configuration, and behind them the plugins that are installed and that no block runs, as not_configured.",
		success: []int{http.StatusOK}, codes: []sdk.Code{sdk.CodeUnavailable},
	}, func(ctx context.Context, _ call[none]) (int, AdminProviderList, error) {
		list := AdminProviderList{Data: []AdminProvider{}}
		all, err := s.admin.Available(ctx)
		if err != nil {
			return 0, AdminProviderList{}, err
		}
		for _, p := range all {
			list.Data = append(list.Data, adminProviderOf(p))
		}
		return http.StatusOK, list, nil
	})
	register(s, operation{
		method: http.MethodGet, path: path + "/{label}", id: "adminGetProvider", tag: tagAdmin, admin: true,
		summary: "How one provider is",
		success: []int{http.StatusOK}, codes: []sdk.Code{sdk.CodeNotFound},
	}, func(ctx context.Context, c call[none]) (int, AdminProviderAnswer, error) {
		p, err := s.admin.Provider(ctx, c.path["label"])
		if err != nil {
			return 0, AdminProviderAnswer{}, err
		}
		return http.StatusOK, AdminProviderAnswer{Data: adminProviderOf(p)}, nil
	})
	s.adminInstanceRoutes()
	s.adminTenantRoutes()
}

// authenticateAdmin lets administrators pass.
func (s *Server) authenticateAdmin(header *fasthttp.RequestHeader) error {
	if s.admin == nil || !s.admin.Enabled() {
		return sdk.Errorf(sdk.CodeNotAllowed, "This broker has no administrators. To have one, put the sum of a token that `sandbox-broker token` makes into the configuration: admin { token_sha256 = [...] }")
	}
	if s.isAdmin(header) {
		return nil
	}
	if _, err := s.authenticate(header); err != nil {
		return err
	}
	return sdk.Errorf(sdk.CodeNotAllowed, "This token is a tenant's. What is below /api/admin takes an administrator's.")
}

func (s *Server) isAdmin(header *fasthttp.RequestHeader) bool {
	return s.admin != nil && s.admin.Authenticate(tokenOf(header))
}

func adminProviderOf(p admin.Provider) AdminProvider {
	d := p.Description
	answer := AdminProvider{
		ID:                 p.Label,
		Name:               titleOf(p.Label),
		Description:        d.Summary,
		Icon:               d.Icon,
		Tags:               append([]string{}, d.Tags...),
		Active:             p.Active,
		SupportedLanguages: words(d.Languages),
		Templates:          []Template{},
		Capabilities:       words(d.Capabilities),
		ConfigSchema:       map[string]AdminField{},
		Plugin: AdminPlugin{
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
		answer.Templates = append(answer.Templates, Template{Name: t.Name, Description: t.Description, Languages: words(t.Languages)})
	}
	for i, f := range d.Schema {
		answer.ConfigSchema[f.Name] = adminFieldOf(i, f)
	}
	if err := p.State.LastError; err != nil {
		answer.LastError = &AdminFailure{Message: err.Error(), At: p.State.FailedAt.UTC(), Stderr: lastBytes(pluginhost.Stderr(err), maxLastWords)}
	}
	answer.Circuit = circuitOf(p.Standing)
	if next := p.State.NextTry; !next.IsZero() {
		answer.NextTry = next.UTC()
	}
	return answer
}

func adminFieldOf(position int, f sdk.Field) AdminField {
	field := AdminField{
		Position: position, Type: string(f.Type), Required: f.Required, Secret: f.Secret, FileOnly: f.FileOnly,
		Label: f.Label, Description: f.Description, Placeholder: f.Placeholder,
		Options: slices.Clone(f.Options), Min: f.Min, Max: f.Max, Pattern: f.Pattern,
	}
	if f.Items != nil {
		field.Items = &AdminItems{Type: string(f.Items.Type), Options: slices.Clone(f.Items.Options), Min: f.Items.Min, Max: f.Items.Max, Pattern: f.Items.Pattern}
	}
	if f.Type == sdk.TypeBlock {
		field.Repeated, field.Fields = f.Repeated, map[string]AdminField{}
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
