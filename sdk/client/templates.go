package client

import (
	"context"
	"net/http"
	"time"
)

// TemplateList is what instances can be made of.
type TemplateList struct {
	_         struct{}           `additionalProperties:"true"`
	Templates []OperatorTemplate `json:"templates" nullable:"false" doc:"In the order of the configuration; of each, one for every provider that it is built on."`
}

// OperatorTemplate is a template of the configuration on one provider.
type OperatorTemplate struct {
	_         struct{} `additionalProperties:"true"`
	Name      string   `json:"name" doc:"What a request names as its template." example:"data"`
	Provider  string   `json:"provider" example:"self_managed"`
	State     string   `json:"state" enum:"building,ready,failed"`
	Usable    bool     `json:"usable" doc:"Whether instances can be made of it: also while a later build goes on, or after it has failed, of the one before."`
	Reason    string   `json:"reason,omitempty" doc:"Why the last build failed."`
	Languages []string `json:"languages" nullable:"false" doc:"What can be run in it; empty as long as it was never built."`
}

// AdminTemplateList is what administrators see of templates.
type AdminTemplateList struct {
	_    struct{}        `additionalProperties:"true"`
	Data []AdminTemplate `json:"data" nullable:"false" doc:"In the order of the configuration; of each, one for every provider that it is built on."`
}

// AdminTemplate is a template on one provider, with its build.
type AdminTemplate struct {
	_         struct{}            `additionalProperties:"true"`
	Name      string              `json:"name" example:"data"`
	Provider  string              `json:"provider" example:"self_managed"`
	State     string              `json:"state" enum:"building,ready,failed"`
	Usable    bool                `json:"usable" doc:"Whether instances can be made of it: also while a later build goes on, or after it has failed, of the one before."`
	Reason    string              `json:"reason,omitempty" doc:"Why the last build failed."`
	Code      string              `json:"code,omitempty" doc:"The code of that failure." example:"SB010"`
	Languages []string            `json:"languages" nullable:"false"`
	Image     string              `json:"image,omitempty" doc:"What instances are made of: the sum over all that was built; absent as long as there is nothing." example:"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Source    string              `json:"source,omitempty" doc:"The sum that its image is pinned to."`
	Bytes     int64               `json:"bytes,omitempty" doc:"Of its files; templates may share them."`
	BuiltAt   time.Time           `json:"built_at,omitempty,omitzero"`
	Began     time.Time           `json:"began" doc:"When the last build began."`
	Ended     time.Time           `json:"ended,omitempty,omitzero" doc:"When it ended; absent while it goes on."`
	Steps     []AdminTemplateStep `json:"steps" nullable:"false" doc:"What the last build has done, the latest last; at most 50."`
}

// AdminTemplateStep is one thing that a build does.
type AdminTemplateStep struct {
	_     struct{} `additionalProperties:"true"`
	Step  string   `json:"step" example:"layer 2 of 5"`
	Done  int64    `json:"done,omitempty" doc:"Bytes of it that are done."`
	Total int64    `json:"total,omitempty" doc:"Bytes of it; absent where nobody knows."`
}

// AdminTemplateSettings are what a template is made of. What is left out has no value of
// its own.
type AdminTemplateSettings struct {
	From      string   `json:"from" minLength:"1" maxLength:"4096" doc:"An image of a registry." example:"docker.io/library/python:3.12-slim"`
	Packages  []string `json:"packages,omitempty" maxItems:"100" nullable:"false" doc:"Packages of Python."`
	Start     string   `json:"start,omitempty" maxLength:"4096" doc:"A command for bash from the start of each instance on."`
	Ready     string   `json:"ready,omitempty" maxLength:"4096" doc:"A command for bash that succeeds when the instance is ready."`
	MemoryMB  int64    `json:"memory_mb,omitempty" minimum:"0" maximum:"1048576"`
	CPUs      float64  `json:"cpus,omitempty" minimum:"0" maximum:"256"`
	Providers []string `json:"providers,omitempty" maxItems:"100" nullable:"false" doc:"Labels of the providers on which it is built; all that can unless given."`
	Tenants   []string `json:"tenants,omitempty" maxItems:"10000" nullable:"false" doc:"Who may use it; all unless given."`
	DryRun    bool     `json:"dry_run,omitempty" doc:"Only say what would change."`
}

// AdminTemplateChanged is the answer to a change of templates.
type AdminTemplateChanged struct {
	_       struct{}    `additionalProperties:"true"`
	Message string      `json:"message"`
	Reload  AdminReload `json:"reload"`

	Difference *string `json:"difference,omitempty" doc:"Of a dry run: as in a change of a provider."`
}

// TemplatesOf asks a broker for the templates of its configuration that the tenant may use.
func TemplatesOf(c *Client) Templates { return Templates{c} }

// Templates are those of the configuration.
type Templates struct{ client *Client }

// List lists them, with their state on each provider.
func (t Templates) List(ctx context.Context) (TemplateList, error) {
	return ask[TemplateList](ctx, t.client, Request{Method: get, Path: "/api/v1/templates"})
}

// Templates lists all templates of the configuration, with how their builds go on.
func (a Admin) Templates(ctx context.Context) (AdminTemplateList, error) {
	return ask[AdminTemplateList](ctx, a.client, Request{Method: get, Path: adminPath("templates")})
}

// PutTemplate adds a template to the configuration, or gives one other settings.
func (a Admin) PutTemplate(ctx context.Context, name string, req AdminTemplateSettings) (AdminTemplateChanged, error) {
	return ask[AdminTemplateChanged](ctx, a.client, Request{Method: http.MethodPut, Path: adminPath("templates", name), Body: req})
}

// BuildTemplate has a template built anew, from what its image is by now.
func (a Admin) BuildTemplate(ctx context.Context, name string) (AdminTemplateList, error) {
	return ask[AdminTemplateList](ctx, a.client, Request{Method: post, Path: adminPath("templates", name, "build")})
}

// RemoveTemplate removes a template from the configuration. Instances of it go on.
func (a Admin) RemoveTemplate(ctx context.Context, name string) (AdminTemplateChanged, error) {
	return ask[AdminTemplateChanged](ctx, a.client, Request{Method: http.MethodDelete, Path: adminPath("templates", name)})
}
