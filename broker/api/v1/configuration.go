package v1

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Configurator changes the configuration for administrators; admin.Configurator is
// it.
type Configurator interface {
	Configuration() admin.Configuration
	InForce() admin.Generation
	SaveProvider(ctx context.Context, req admin.ProviderSettings) (admin.Outcome, error)
	Activate(ctx context.Context, req admin.Activation) (admin.Outcome, error)
	Test(ctx context.Context, req admin.ProviderSettings) (admin.Trial, error)
	Restore(ctx context.Context, generation int, ifMatch []string) (admin.Outcome, error)
	PreviewProvider(ctx context.Context, req admin.ProviderSettings) (admin.Preview, error)
	PreviewActivation(ctx context.Context, req admin.Activation) (admin.Preview, error)
	PreviewRestore(ctx context.Context, generation int, ifMatch []string) (admin.Preview, error)
	Reload(ctx context.Context, dry bool) (admin.Reload, error)
	Generations() []admin.Reload
	Status() admin.Status
}

// pathAdmin is above all that is for administrators.
const pathAdmin = "/api/admin/sandbox"

// configurationRoutes are for administrators.
type configurationRoutes struct {
	configurator Configurator
	providers    Providers
}

func (h configurationRoutes) register(a *rest.API) {
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: pathAdmin + "/config", ID: "adminGetConfig", Tag: tagAdmin, Admin: true, Tagged: true,
		Summary: "The configuration in force",
		Success: []int{http.StatusOK},
	}, func(_ context.Context, c rest.Call[rest.None]) (int, client.AdminConfig, error) {
		answer := adminConfigOf(h.configurator.Configuration())
		c.SetETag(answer.Meta.Revision)
		return http.StatusOK, answer, nil
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: pathAdmin + "/config", ID: "adminSetConfig", Tag: tagAdmin, Admin: true, Tagged: true, Conditional: true,
		Summary: "Give a provider other settings",
		Details: "The files of the configuration are changed in place: comments, order and what is not named stay. Secrets are written sealed. " +
			"It is answered when the new configuration is in force. If anything is in the way, files and broker are as before, and the problem has all diagnostics.",
		Success: []int{http.StatusOK},
		Codes:   []sdk.Code{sdk.CodeInvalidConfig, sdk.CodeConnectionFailed, sdk.CodeQuotaExceeded, sdk.CodeUnavailable, sdk.CodeConflict},
	}, h.setConfig)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: pathAdmin + "/test", ID: "adminTest", Tag: tagAdmin, Admin: true,
		Summary: "Whether a provider works with these settings",
		Details: "A process of it is started beside those that run, configured, asked whether it is well, and stopped. Nothing is kept. It takes half a minute at most.",
		Success: []int{http.StatusOK},
		Codes:   []sdk.Code{sdk.CodeQuotaExceeded, sdk.CodeUnavailable},
	}, h.testProvider)
	rest.Register(a, rest.Operation{
		Method: http.MethodPut, Path: pathAdmin + "/active", ID: "adminSetActive", Tag: tagAdmin, Admin: true, Tagged: true, Conditional: true,
		Summary: "Choose the active provider",
		Details: "It serves requests that name none from now on. Instances that there are stay where they are.",
		Success: []int{http.StatusOK},
		Codes:   []sdk.Code{sdk.CodeInvalidConfig, sdk.CodeUnavailable, sdk.CodeConflict},
	}, h.setActive)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: pathAdmin + "/generations", ID: "adminListGenerations", Tag: tagAdmin, Admin: true,
		Summary: "The last attempts to change the configuration",
		Query:   []rest.Parameter{{Name: "limit", Kind: rest.Integer, Least: 1, Most: maxPage, Doc: "At most so many."}},
		Success: []int{http.StatusOK},
	}, func(_ context.Context, c rest.Call[rest.None]) (int, client.AdminGenerations, error) {
		answer := client.AdminGenerations{Data: []client.AdminReload{}}
		for _, r := range h.configurator.Generations() {
			if int64(len(answer.Data)) == c.Query.Integer("limit", maxPage) {
				break
			}
			answer.Data = append(answer.Data, adminReloadOf(r))
		}
		return http.StatusOK, answer, nil
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: pathAdmin + "/generations/{number}/restore", ID: "adminRestore", Tag: tagAdmin, Admin: true, Tagged: true, Conditional: true,
		Summary: "Bring in force the files of an earlier generation",
		Details: "As they were when it came in force. It is a change as others are: all of it or nothing. Tokens that were revoked since let in again.",
		Success: []int{http.StatusOK},
		Codes:   []sdk.Code{sdk.CodeInvalidConfig, sdk.CodeNotFound, sdk.CodeUnavailable, sdk.CodeConflict},
	}, h.restore)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: pathAdmin + "/reload", ID: "adminReload", Tag: tagAdmin, Admin: true,
		Summary: "Read the files of the configuration again",
		Details: "As SIGHUP does, or as a dry run. A dry run says what would become of it, in the same form; one that finds mistakes answers 200 with the result refused and its diagnostics; a reload that does is a problem with them.",
		Success: []int{http.StatusOK},
		Codes:   []sdk.Code{sdk.CodeInvalidConfig, sdk.CodeUnavailable},
	}, func(ctx context.Context, c rest.Call[client.AdminReloadRequest]) (int, client.AdminReloaded, error) {
		reload, err := h.configurator.Reload(ctx, c.Body.DryRun)
		return http.StatusOK, client.AdminReloaded{Data: adminReloadOf(reload)}, err
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: pathAdmin + "/status", ID: "adminGetStatus", Tag: tagAdmin, Admin: true,
		Summary: "How the broker is",
		Success: []int{http.StatusOK},
	}, h.status)
}

func (h configurationRoutes) setConfig(ctx context.Context, c rest.Call[client.AdminConfigRequest]) (int, client.AdminChanged, error) {
	req := admin.ProviderSettings{Plugin: c.Body.Plugin, Test: c.Body.Test, Activate: c.Body.SetActive == nil || *c.Body.SetActive}
	var err error
	if req.Provider, err = oneLabel(c.Body.ProviderType, c.Body.Provider); err != nil {
		return 0, client.AdminChanged{}, err
	}
	if req.Settings, err = settingsOf(c.Body.Config); err != nil {
		return 0, client.AdminChanged{}, err
	}
	if req.IfMatch, err = revisions(c.IfMatch); err != nil {
		return 0, client.AdminChanged{}, err
	}
	if c.Body.DryRun {
		if req.Test {
			return 0, client.AdminChanged{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "test_connection", "tries the provider, which a dry run does not; ask for it with POST /test")
		}
		preview, err := h.configurator.PreviewProvider(ctx, req)
		return previewed(c, preview, belowConfig(err, req.Provider))
	}
	outcome, err := h.configurator.SaveProvider(ctx, req)
	if err != nil {
		return 0, client.AdminChanged{}, belowConfig(err, req.Provider)
	}
	answer := client.AdminChanged{Message: "Configuration saved", Data: adminReloadOf(outcome.Reload)}
	if outcome.Trial != nil {
		answer.Test = new(adminTestOf(*outcome.Trial))
	}
	c.SetETag(answer.Data.Revision)
	return http.StatusOK, answer, nil
}

func (h configurationRoutes) testProvider(ctx context.Context, c rest.Call[client.AdminTestRequest]) (int, client.AdminTest, error) {
	label, err := oneLabel(c.Body.ProviderType, c.Body.Provider)
	if err != nil {
		return 0, client.AdminTest{}, err
	}
	settings, err := settingsOf(c.Body.Config)
	if err != nil {
		return 0, client.AdminTest{}, err
	}
	trial, err := h.configurator.Test(ctx, admin.ProviderSettings{Provider: label, Plugin: c.Body.Plugin, Settings: settings})
	if wrong, ok := configurationProblem(belowConfig(err, label)); ok {
		answer := client.AdminTest{Message: wrong.detail, Code: string(sdk.CodeInvalidConfig), Details: map[string]string{}, Diagnostics: wrong.diagnostics}
		if len(wrong.fields) > 0 {
			answer.Field = wrong.fields[0].Field
		}
		return http.StatusOK, answer, nil
	}
	return http.StatusOK, adminTestOf(trial), err
}

func (h configurationRoutes) setActive(ctx context.Context, c rest.Call[client.AdminActiveRequest]) (int, client.AdminChanged, error) {
	req := admin.Activation{Provider: c.Body.Provider}
	if c.Body.Fallback != nil {
		req.Fallback = append([]string{}, *c.Body.Fallback...)
	}
	var err error
	if req.IfMatch, err = revisions(c.IfMatch); err != nil {
		return 0, client.AdminChanged{}, err
	}
	if c.Body.DryRun {
		preview, err := h.configurator.PreviewActivation(ctx, req)
		return previewed(c, preview, err)
	}
	outcome, err := h.configurator.Activate(ctx, req)
	c.SetETag(outcome.Reload.Revision)
	return http.StatusOK, client.AdminChanged{Message: "Active provider updated", Data: adminReloadOf(outcome.Reload)}, err
}

func (h configurationRoutes) restore(ctx context.Context, c rest.Call[client.AdminRestoreRequest]) (int, client.AdminChanged, error) {
	number, err := strconv.Atoi(c.Path["number"])
	if err != nil {
		return 0, client.AdminChanged{}, sdk.Errorf(sdk.CodeNotFound, "a generation has a number")
	}
	ifMatch, err := revisions(c.IfMatch)
	if err != nil {
		return 0, client.AdminChanged{}, err
	}
	if c.Body.DryRun {
		preview, err := h.configurator.PreviewRestore(ctx, number, ifMatch)
		return previewed(c, preview, err)
	}
	outcome, err := h.configurator.Restore(ctx, number, ifMatch)
	c.SetETag(outcome.Reload.Revision)
	return http.StatusOK, client.AdminChanged{Message: "Configuration restored", Data: adminReloadOf(outcome.Reload)}, err
}

// onlyPreviewed is the message of a dry run.
const onlyPreviewed = "Nothing has changed: this is what would"

// previewed answers a dry run. Its ETag is that of the files as they are, for the change
// itself.
func previewed[In any](c rest.Call[In], preview admin.Preview, err error) (int, client.AdminChanged, error) {
	if err != nil {
		return 0, client.AdminChanged{}, err
	}
	reload := adminReloadOf(preview.Reload)
	c.SetETag(preview.Revision)
	return http.StatusOK, client.AdminChanged{
		Message: onlyPreviewed, Data: reload, AdminPreview: client.AdminPreview{Reload: &reload, Difference: &preview.Difference},
	}, nil
}

func (h configurationRoutes) status(context.Context, rest.Call[rest.None]) (int, client.AdminStatusAnswer, error) {
	status, g := h.configurator.Status(), h.configurator.InForce()
	answer := client.AdminStatus{
		Version: status.Version, StartedAt: status.Started.UTC(), Uptime: time.Since(status.Started).Round(time.Millisecond).Seconds(),
		Generation: g.Number, AcceptedAt: g.Accepted.UTC(), Revision: g.Config.Revision,
		Active: g.Config.ActiveProvider, Fallback: words(g.Config.FallbackProviders),
		Providers: []client.AdminProviderStatus{}, Instances: status.Instances,
	}
	for _, p := range h.providers.Providers() {
		answer.Providers = append(answer.Providers, client.AdminProviderStatus{
			ID: p.Label, State: string(p.State.Phase), Healthy: p.State.Healthy, Reason: p.State.Reason, Draining: p.Draining,
		})
	}
	if all := h.configurator.Generations(); len(all) > 0 {
		answer.LastReload = new(adminReloadOf(all[0]))
	}
	return http.StatusOK, client.AdminStatusAnswer{Data: answer}, nil
}

// oneLabel is the provider that a body names in one of two ways.
func oneLabel(providerType, provider string) (string, error) {
	switch {
	case providerType == "" && provider == "":
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "provider_type", "is Required: a string")
	case providerType != "" && provider != "" && providerType != provider:
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "provider", "must not differ from provider_type")
	default:
		return cmp.Or(providerType, provider), nil
	}
}

// settingsOf reads settings, whose numbers stay as they are written.
func settingsOf(object client.JSONObject) (map[string]any, error) {
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
				refused.fields = append(refused.fields, rest.FieldError{Field: above + d.Setting, Detail: d.Detail})
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

func adminConfigOf(c admin.Configuration) client.AdminConfig {
	g := c.Generation
	answer := client.AdminConfig{
		Data: client.AdminSettings{},
		Meta: client.AdminConfigMeta{
			Fallback: words(g.Config.FallbackProviders), Generation: g.Number, AcceptedAt: g.Accepted.UTC(), Revision: g.Config.Revision,
			Files: words(c.Files), Writable: c.ReadOnly == "", ReadOnly: c.ReadOnly, Differs: c.Differs, Seals: c.Seals,
			Origins: map[string]map[string]client.AdminOrigin{},
		},
	}
	for label, settings := range c.Settings {
		values, origins := map[string]any{}, map[string]client.AdminOrigin{}
		for _, setting := range settings {
			if setting.Value != nil {
				values[setting.Name] = setting.Value
			}
			origins[setting.Name] = client.AdminOrigin{Origin: string(setting.Origin.Kind), Name: setting.Origin.Name, Masked: setting.Masked}
		}
		answer.Data[label], answer.Meta.Origins[label] = values, origins
	}
	answer.Data["active"] = g.Config.ActiveProvider // the configuration takes no provider of that name
	if c.LastRefused != nil {
		answer.Meta.LastRefused = new(adminReloadOf(*c.LastRefused))
	}
	return answer
}

func adminTestOf(t admin.Trial) client.AdminTest {
	test := client.AdminTest{Success: t.Success, Message: t.Message, LatencyMS: milliseconds(t.Latency), Code: string(t.Code), Details: t.Details}
	if t.Details == nil {
		test.Details = map[string]string{}
	}
	if t.Field != "" {
		test.Field = "config." + t.Field
	}
	return test
}

func adminReloadOf(r admin.Reload) client.AdminReload {
	reload := client.AdminReload{
		Result: r.Result(), Generation: r.Generation, At: r.At.UTC(), TookMS: milliseconds(r.Took),
		Trigger: string(r.Trigger), Operation: r.Operation, Revision: r.Revision,
		Change: client.AdminChange{
			Providers:    []client.AdminProviderChange{},
			TenantsAdded: words(r.Change.TenantsAdded), TenantsRemoved: words(r.Change.TenantsRemoved), TenantsChanged: words(r.Change.TenantsChanged),
			Settings: words(r.Change.Settings),
		},
		Diagnostics: diagnosticsOf(r.Diagnostics), Restorable: r.Restorable,
	}
	for _, p := range r.Change.Providers {
		reload.Change.Providers = append(reload.Change.Providers, client.AdminProviderChange{Provider: p.Provider, Action: string(p.Action), Draining: p.Draining})
	}
	return reload
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
