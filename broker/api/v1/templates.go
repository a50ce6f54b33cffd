package v1

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/templates"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Templates knows what was built of the templates of the configuration;
// templates.Builder does.
type Templates interface {
	// Statuses are those of all templates, or of those that a tenant may use.
	Statuses(tenant string) []templates.Status
	Build(ctx context.Context, name string) error
}

// TemplateConfigurator changes templates for administrators; admin.Configurator is it.
type TemplateConfigurator interface {
	PutTemplate(ctx context.Context, req admin.TemplateSettings) (admin.Outcome, error)
	RemoveTemplate(ctx context.Context, name string, ifMatch []string) (admin.Outcome, error)
	PreviewTemplate(ctx context.Context, req admin.TemplateSettings) (admin.Preview, error)
	PreviewTemplateRemoval(ctx context.Context, name string, ifMatch []string) (admin.Preview, error)
}

const (
	pathTemplates = pathAdmin + "/templates"
	pathTemplate  = pathTemplates + "/{name}"
)

// templateRoutes are about the templates of the configuration.
type templateRoutes struct {
	templates    Templates // nil for none
	configurator TemplateConfigurator
}

func (h templateRoutes) register(a *rest.API) {
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: "/api/v1/templates", ID: "listTemplates", Tag: tagProviders,
		Summary: "List the templates of the operator",
		Details: "Those that the tenant may use, on the providers that it may use. What the providers have themselves is in their list.",
		Success: []int{http.StatusOK},
	}, h.list)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: pathTemplates, ID: "adminListTemplates", Tag: tagAdmin, Admin: true,
		Summary: "How the templates are, and how their builds go on",
		Success: []int{http.StatusOK},
	}, h.adminList)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: pathTemplate + "/build", ID: "adminBuildTemplate", Tag: tagAdmin, Admin: true,
		Summary: "Build a template anew",
		Details: "Of what its image stands for now, and with the packages that there are now. Instances are made of what was built before until that has succeeded. The answer does not wait for it.",
		Success: []int{http.StatusAccepted}, Codes: []sdk.Code{sdk.CodeNotFound},
	}, func(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminTemplateList, error) {
		if h.templates == nil {
			return 0, client.AdminTemplateList{}, sdk.FieldErrorf(sdk.CodeNotFound, "name", "there is no template of that name that a provider could build")
		}
		if err := h.templates.Build(ctx, c.Path["name"]); err != nil {
			return 0, client.AdminTemplateList{}, err
		}
		return http.StatusAccepted, h.adminTemplates(c.Path["name"]), nil
	})
	change := func(method, id, summary, details string, codes ...sdk.Code) rest.Operation {
		return rest.Operation{
			Method: method, Path: pathTemplate, ID: id, Tag: tagAdmin, Admin: true, Tagged: true, Conditional: true,
			Summary: summary, Details: details, Success: []int{http.StatusOK},
			Codes: append(codes, sdk.CodeInvalidConfig, sdk.CodeConflict, sdk.CodeUnavailable),
		}
	}
	rest.Register(a, change(http.MethodPut, "adminPutTemplate", "Add a template, or change what one is made of",
		"It is built in the background. What names a path on the broker's machine, or may be secret, is changed in the file alone: one with such settings is refused."), h.put)
	removal := change(http.MethodDelete, "adminRemoveTemplate", "Remove a template",
		"No instance is made of it any more. Those that there are live on.", sdk.CodeNotFound)
	removal.Query = []rest.Parameter{{Name: "dry_run", Kind: rest.Boolean, Doc: "Only say what would change."}}
	rest.Register(a, removal, h.remove)
}

func (h templateRoutes) list(_ context.Context, c rest.Call[rest.None]) (int, client.TemplateList, error) {
	list := client.TemplateList{Templates: []client.OperatorTemplate{}}
	if h.templates == nil {
		return http.StatusOK, list, nil
	}
	for _, s := range h.templates.Statuses(c.Tenant.Name) {
		if !c.Tenant.Allows(s.Provider) {
			continue
		}
		t := client.OperatorTemplate{Name: s.Name, Provider: s.Provider, State: string(s.State), Usable: s.Built != nil, Languages: []string{}}
		if s.State == templates.Failed {
			t.Reason = "it could not be built: the administrator sees why"
		}
		if s.Built != nil {
			t.Languages = words(s.Built.Languages)
		}
		list.Templates = append(list.Templates, t)
	}
	return http.StatusOK, list, nil
}

func (h templateRoutes) adminList(context.Context, rest.Call[rest.None]) (int, client.AdminTemplateList, error) {
	return http.StatusOK, h.adminTemplates(""), nil
}

// adminTemplates are those of a name, or all.
func (h templateRoutes) adminTemplates(name string) client.AdminTemplateList {
	list := client.AdminTemplateList{Data: []client.AdminTemplate{}}
	if h.templates == nil {
		return list
	}
	for _, s := range h.templates.Statuses("") {
		if name == "" || s.Name == name {
			list.Data = append(list.Data, adminTemplateOf(s))
		}
	}
	return list
}

func adminTemplateOf(s templates.Status) client.AdminTemplate {
	t := client.AdminTemplate{
		Name: s.Name, Provider: s.Provider, State: string(s.State), Usable: s.Built != nil, Reason: s.Reason, Code: string(s.Code),
		Languages: []string{}, Began: s.Began.UTC(), Steps: []client.AdminTemplateStep{},
	}
	if !s.Ended.IsZero() {
		t.Ended = s.Ended.UTC()
	}
	if s.Built != nil {
		t.Languages, t.Image, t.Source, t.Bytes, t.BuiltAt = words(s.Built.Languages), s.Built.Image, s.Built.Source, s.Built.Bytes, s.Built.BuiltAt.UTC()
	}
	for _, step := range s.Steps {
		t.Steps = append(t.Steps, client.AdminTemplateStep{Step: step.Step, Done: step.Done, Total: step.Total})
	}
	return t
}

func (h templateRoutes) put(ctx context.Context, c rest.Call[client.AdminTemplateSettings]) (int, client.AdminTemplateChanged, error) {
	req := admin.TemplateSettings{
		Name: c.Path["name"], From: c.Body.From, Packages: c.Body.Packages, Start: c.Body.Start, Ready: c.Body.Ready,
		MemoryMB: c.Body.MemoryMB, CPUs: c.Body.CPUs, Providers: c.Body.Providers, Tenants: c.Body.Tenants,
	}
	return templateChanged(c, "Template changed", c.Body.DryRun,
		func(ifMatch []string) (admin.Outcome, error) {
			req.IfMatch = ifMatch
			return h.configurator.PutTemplate(ctx, req)
		}, func(ifMatch []string) (admin.Preview, error) {
			req.IfMatch = ifMatch
			return h.configurator.PreviewTemplate(ctx, req)
		})
}

func (h templateRoutes) remove(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminTemplateChanged, error) {
	return templateChanged(c, "Template removed", c.Query.Boolean("dry_run"),
		func(ifMatch []string) (admin.Outcome, error) {
			return h.configurator.RemoveTemplate(ctx, c.Path["name"], ifMatch)
		}, func(ifMatch []string) (admin.Preview, error) {
			return h.configurator.PreviewTemplateRemoval(ctx, c.Path["name"], ifMatch)
		})
}

// templateChanged answers a change, or a dry run of one.
func templateChanged[In any](c rest.Call[In], message string, dryRun bool, change func(ifMatch []string) (admin.Outcome, error), preview func(ifMatch []string) (admin.Preview, error)) (int, client.AdminTemplateChanged, error) {
	ifMatch, err := revisions(c.IfMatch)
	if err != nil {
		return 0, client.AdminTemplateChanged{}, err
	}
	if dryRun {
		p, err := preview(ifMatch)
		if err != nil {
			return 0, client.AdminTemplateChanged{}, err
		}
		c.SetETag(p.Revision)
		return http.StatusOK, client.AdminTemplateChanged{Message: onlyPreviewed, Reload: adminReloadOf(p.Reload), Difference: &p.Difference}, nil
	}
	outcome, err := change(ifMatch)
	c.SetETag(outcome.Reload.Revision)
	return http.StatusOK, client.AdminTemplateChanged{Message: message, Reload: adminReloadOf(outcome.Reload)}, err
}
