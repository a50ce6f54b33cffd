package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Configurator changes the configuration for administrators; admin.Configurator is
// it.
type Configurator interface {
	Configuration() admin.Configuration
	InForce() admin.Generation
	SaveProvider(ctx context.Context, req admin.ProviderSettings) (admin.Outcome, error)
	Activate(ctx context.Context, req admin.Activation) (admin.Outcome, error)
	Test(ctx context.Context, req admin.ProviderSettings) (admin.Trial, error)
	Reload(ctx context.Context, dry bool) (admin.Reload, error)
	Generations() []admin.Reload
	Status() admin.Status
}

// pathAdmin is above all that is for administrators.
const pathAdmin = "/api/admin/sandbox"

// configurationRoutes are for administrators.
func (s *Server) configurationRoutes() {
	register(s, operation{
		method: http.MethodGet, path: pathAdmin + "/config", id: "adminGetConfig", tag: tagAdmin, admin: true, tagged: true,
		summary: "The configuration in force",
		success: []int{http.StatusOK},
	}, func(context.Context, call[none]) (int, AdminConfig, error) {
		return http.StatusOK, adminConfigOf(s.configurator.Configuration()), nil
	})
	register(s, operation{
		method: http.MethodPost, path: pathAdmin + "/config", id: "adminSetConfig", tag: tagAdmin, admin: true, tagged: true, conditional: true,
		summary: "Give a provider other settings",
		details: "The files of the configuration are changed in place: comments, order and what is not named stay. Secrets are written sealed. " +
			"It is answered when the new configuration is in force. If anything is in the way, files and broker are as before, and the problem has all diagnostics.",
		success: []int{http.StatusOK},
		codes:   []sdk.Code{sdk.CodeInvalidConfig, sdk.CodeConnectionFailed, sdk.CodeQuotaExceeded, sdk.CodeUnavailable, sdk.CodeConflict},
	}, s.setConfig)
	register(s, operation{
		method: http.MethodPost, path: pathAdmin + "/test", id: "adminTest", tag: tagAdmin, admin: true,
		summary: "Whether a provider works with these settings",
		details: "A process of it is started beside those that run, configured, asked whether it is well, and stopped. Nothing is kept. It takes half a minute at most.",
		success: []int{http.StatusOK},
		codes:   []sdk.Code{sdk.CodeQuotaExceeded, sdk.CodeUnavailable},
	}, s.testProvider)
	register(s, operation{
		method: http.MethodPut, path: pathAdmin + "/active", id: "adminSetActive", tag: tagAdmin, admin: true, tagged: true, conditional: true,
		summary: "Choose the active provider",
		details: "It serves requests that name none from now on. Instances that there are stay where they are.",
		success: []int{http.StatusOK},
		codes:   []sdk.Code{sdk.CodeInvalidConfig, sdk.CodeUnavailable, sdk.CodeConflict},
	}, s.setActive)
	register(s, operation{
		method: http.MethodGet, path: pathAdmin + "/generations", id: "adminListGenerations", tag: tagAdmin, admin: true,
		summary: "The last attempts to change the configuration",
		query:   []parameter{{name: "limit", kind: integerParameter, least: 1, most: maxPage, doc: "At most so many."}},
		success: []int{http.StatusOK},
	}, func(_ context.Context, c call[none]) (int, AdminGenerations, error) {
		answer := AdminGenerations{Data: []AdminReload{}}
		for _, r := range s.configurator.Generations() {
			if int64(len(answer.Data)) == c.query.integer("limit", maxPage) {
				break
			}
			answer.Data = append(answer.Data, adminReloadOf(r))
		}
		return http.StatusOK, answer, nil
	})
	register(s, operation{
		method: http.MethodPost, path: pathAdmin + "/reload", id: "adminReload", tag: tagAdmin, admin: true,
		summary: "Read the files of the configuration again",
		details: "As SIGHUP does, or as a dry run. A dry run says what would become of it, in the same form; one that finds mistakes answers 200 with the result refused and its diagnostics; a reload that does is a problem with them.",
		success: []int{http.StatusOK},
		codes:   []sdk.Code{sdk.CodeInvalidConfig, sdk.CodeUnavailable},
	}, func(ctx context.Context, c call[AdminReloadRequest]) (int, AdminReloaded, error) {
		reload, err := s.configurator.Reload(ctx, c.body.DryRun)
		return http.StatusOK, AdminReloaded{Data: adminReloadOf(reload)}, err
	})
	register(s, operation{
		method: http.MethodGet, path: pathAdmin + "/status", id: "adminGetStatus", tag: tagAdmin, admin: true,
		summary: "How the broker is",
		success: []int{http.StatusOK},
	}, s.status)
}

func (s *Server) setConfig(ctx context.Context, c call[AdminConfigRequest]) (int, AdminChanged, error) {
	req := admin.ProviderSettings{Plugin: c.body.Plugin, Test: c.body.Test, Activate: c.body.SetActive == nil || *c.body.SetActive}
	var err error
	if req.Provider, err = oneLabel(c.body.ProviderType, c.body.Provider); err != nil {
		return 0, AdminChanged{}, err
	}
	if req.Settings, err = settingsOf(c.body.Config); err != nil {
		return 0, AdminChanged{}, err
	}
	if req.IfMatch, err = revisions(c.ifMatch); err != nil {
		return 0, AdminChanged{}, err
	}
	outcome, err := s.configurator.SaveProvider(ctx, req)
	if err != nil {
		return 0, AdminChanged{}, belowConfig(err, req.Provider)
	}
	answer := AdminChanged{Message: "Configuration saved", Data: adminReloadOf(outcome.Reload)}
	if outcome.Trial != nil {
		answer.Test = new(adminTestOf(*outcome.Trial))
	}
	return http.StatusOK, answer, nil
}

func (s *Server) testProvider(ctx context.Context, c call[AdminTestRequest]) (int, AdminTest, error) {
	label, err := oneLabel(c.body.ProviderType, c.body.Provider)
	if err != nil {
		return 0, AdminTest{}, err
	}
	settings, err := settingsOf(c.body.Config)
	if err != nil {
		return 0, AdminTest{}, err
	}
	trial, err := s.configurator.Test(ctx, admin.ProviderSettings{Provider: label, Plugin: c.body.Plugin, Settings: settings})
	if wrong, ok := configurationProblem(belowConfig(err, label)); ok {
		answer := AdminTest{Message: wrong.detail, Code: string(sdk.CodeInvalidConfig), Details: map[string]string{}, Diagnostics: wrong.diagnostics}
		if len(wrong.fields) > 0 {
			answer.Field = wrong.fields[0].Field
		}
		return http.StatusOK, answer, nil
	}
	return http.StatusOK, adminTestOf(trial), err
}

func (s *Server) setActive(ctx context.Context, c call[AdminActiveRequest]) (int, AdminChanged, error) {
	req := admin.Activation{Provider: c.body.Provider}
	if c.body.Fallback != nil {
		req.Fallback = append([]string{}, *c.body.Fallback...)
	}
	var err error
	if req.IfMatch, err = revisions(c.ifMatch); err != nil {
		return 0, AdminChanged{}, err
	}
	outcome, err := s.configurator.Activate(ctx, req)
	if err != nil {
		return 0, AdminChanged{}, err
	}
	return http.StatusOK, AdminChanged{Message: "Active provider updated", Data: adminReloadOf(outcome.Reload)}, nil
}

func (s *Server) status(context.Context, call[none]) (int, AdminStatusAnswer, error) {
	status, g := s.configurator.Status(), s.configurator.InForce()
	answer := AdminStatus{
		Version: status.Version, StartedAt: status.Started.UTC(), Uptime: time.Since(status.Started).Round(time.Millisecond).Seconds(),
		Generation: g.Number, AcceptedAt: g.Accepted.UTC(), Revision: g.Config.Revision,
		Active: g.Config.ActiveProvider, Fallback: words(g.Config.FallbackProviders),
		Providers: []AdminProviderStatus{}, Instances: status.Instances,
	}
	for _, p := range s.admin.Providers() {
		answer.Providers = append(answer.Providers, AdminProviderStatus{
			ID: p.Label, State: string(p.State.Phase), Healthy: p.State.Healthy, Reason: p.State.Reason, Draining: p.Draining,
		})
	}
	if all := s.configurator.Generations(); len(all) > 0 {
		answer.LastReload = new(adminReloadOf(all[0]))
	}
	return http.StatusOK, AdminStatusAnswer{Data: answer}, nil
}

// oneLabel is the provider that a body names in one of two ways.
func oneLabel(providerType, provider string) (string, error) {
	switch {
	case providerType == "" && provider == "":
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "provider_type", "is required: a string")
	case providerType != "" && provider != "" && providerType != provider:
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "provider", "must not differ from provider_type")
	default:
		return cmp.Or(providerType, provider), nil
	}
}

// settingsOf reads settings, whose numbers stay as they are written.
func settingsOf(object JSONObject) (map[string]any, error) {
	settings := map[string]any{}
	if len(object) == 0 {
		return settings, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	if err := decoder.Decode(&settings); err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "config", "cannot be read")
	}
	return settings, nil
}

// noRevision is the revision of nothing.
const noRevision = "-"

// revisions reads If-Match: none for a request that does not care. A weak tag is
// none of ours.
func revisions(header string) ([]string, error) {
	if header = strings.TrimSpace(header); header == "" || header == "*" {
		return nil, nil
	}
	var list []string
	for tag := range strings.SplitSeq(header, ",") {
		tag, weak := strings.CutPrefix(strings.TrimSpace(tag), "W/")
		if len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"' {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "If-Match", "must be an ETag in double quotes, as it came")
		}
		if tag = tag[1 : len(tag)-1]; weak || tag == "" {
			tag = noRevision
		}
		list = append(list, tag)
	}
	return list, nil
}

// belowConfig names the fields of a request about a provider where an error names its
// settings.
func belowConfig(err error, provider string) error {
	const above = "config."
	if diags, ok := errors.AsType[config.Diagnostics](err); ok {
		refused := refusedSettings{Diagnostics: diags}
		for _, d := range diags {
			if d.Setting != "" && d.Severity == config.SeverityError && d.Within == fmt.Sprintf("provider %q", provider) {
				refused.fields = append(refused.fields, FieldError{Field: above + d.Setting, Detail: d.Detail})
			}
		}
		return refused
	}
	if fields, ok := errors.AsType[admin.FieldErrors](err); ok {
		var named admin.FieldErrors
		for _, f := range fields {
			named = append(named, sdk.FieldError{Field: above + f.Field, Message: f.Message})
		}
		return named
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Field != "" {
		named := *e
		named.Field = above + e.Field
		return &named
	}
	return err
}

func adminConfigOf(c admin.Configuration) AdminConfig {
	g := c.Generation
	answer := AdminConfig{
		Data: AdminSettings{},
		Meta: AdminConfigMeta{
			Fallback: words(g.Config.FallbackProviders), Generation: g.Number, AcceptedAt: g.Accepted.UTC(), Revision: g.Config.Revision,
			Files: words(c.Files), Writable: c.ReadOnly == "", ReadOnly: c.ReadOnly, Differs: c.Differs, Seals: c.Seals,
			Origins: map[string]map[string]AdminOrigin{},
		},
	}
	for label, settings := range c.Settings {
		values, origins := map[string]any{}, map[string]AdminOrigin{}
		for _, setting := range settings {
			if setting.Value != nil {
				values[setting.Name] = setting.Value
			}
			origins[setting.Name] = AdminOrigin{Origin: string(setting.Origin.Kind), Name: setting.Origin.Name, Masked: setting.Masked}
		}
		answer.Data[label], answer.Meta.Origins[label] = values, origins
	}
	answer.Data["active"] = g.Config.ActiveProvider // the configuration takes no provider of that name
	if c.LastRefused != nil {
		answer.Meta.LastRefused = new(adminReloadOf(*c.LastRefused))
	}
	return answer
}

func adminTestOf(t admin.Trial) AdminTest {
	test := AdminTest{Success: t.Success, Message: t.Message, LatencyMS: milliseconds(t.Latency), Code: string(t.Code), Details: t.Details}
	if t.Details == nil {
		test.Details = map[string]string{}
	}
	if t.Field != "" {
		test.Field = "config." + t.Field
	}
	return test
}

func adminReloadOf(r admin.Reload) AdminReload {
	reload := AdminReload{
		Result: r.Result(), Generation: r.Generation, At: r.At.UTC(), TookMS: milliseconds(r.Took),
		Trigger: string(r.Trigger), Operation: r.Operation, Revision: r.Revision,
		Change: AdminChange{
			Providers:    []AdminProviderChange{},
			TenantsAdded: words(r.Change.TenantsAdded), TenantsRemoved: words(r.Change.TenantsRemoved), TenantsChanged: words(r.Change.TenantsChanged),
			Settings: words(r.Change.Settings),
		},
		Diagnostics: diagnosticsOf(r.Diagnostics),
	}
	for _, p := range r.Change.Providers {
		reload.Change.Providers = append(reload.Change.Providers, AdminProviderChange{Provider: p.Provider, Action: string(p.Action), Draining: p.Draining})
	}
	return reload
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
