package remote

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const pathTemplates = "/api/admin/sandbox/templates"

// Template has the commands about templates of the configuration.
type Template struct {
	Ls    TemplateLs    `cmd:"" default:"withargs" help:"List the templates that you may use."`
	Add   TemplateAdd   `cmd:"" help:"Add a template, or change what one is made of, as an administrator."`
	Build TemplateBuild `cmd:"" help:"Build a template anew, as an administrator."`
	Rm    TemplateRm    `cmd:"" help:"Remove a template, as an administrator."`
}

// Help is shown below the usage.
func (*Template) Help() string {
	return `A template is what instances are made of: the root file system of an image, with packages.

Examples:
  sandbox-broker template ls
  sandbox-broker template ls --builds --context admin
  sandbox-broker template add data --from docker.io/library/python:3.12-slim --package numpy
  sandbox-broker template build data
  sandbox-broker template rm data`
}

// TemplateLs lists templates.
type TemplateLs struct {
	Builds bool `help:"As an administrator: all templates, with how their builds go on."`
	Output
	Connection
}

// Run lists.
func (c *TemplateLs) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	if c.Builds {
		answer, list, err := answered[client.AdminTemplateList](ctx, broker, client.Request{Path: pathTemplates})
		if err != nil {
			return err
		}
		return builds().print(console, c.Output.Output, list.Data, answer)
	}
	answer, list, err := answered[client.TemplateList](ctx, broker, client.Request{Path: "/api/v1/templates"})
	if err != nil {
		return err
	}
	return listing[client.OperatorTemplate]{
		columns: []table.Column[client.OperatorTemplate]{
			{Head: "TEMPLATE", Cell: func(t client.OperatorTemplate) string { return t.Name }},
			{Head: "PROVIDER", Cell: func(t client.OperatorTemplate) string { return t.Provider }},
			{Head: "STATE", Cell: func(t client.OperatorTemplate) string { return t.State }, Color: func(t client.OperatorTemplate) table.Color { return colorOf(t.State) }},
			{Head: "LANGUAGES", Cell: func(t client.OperatorTemplate) string { return strings.Join(t.Languages, ",") }},
			{Head: "REASON", Cell: func(t client.OperatorTemplate) string { return t.Reason }},
		},
		name: func(t client.OperatorTemplate) string { return t.Name },
	}.print(console, c.Output.Output, list.Templates, answer)
}

// builds lists templates as administrators see them.
func builds() listing[client.AdminTemplate] {
	return listing[client.AdminTemplate]{
		columns: []table.Column[client.AdminTemplate]{
			{Head: "TEMPLATE", Cell: func(t client.AdminTemplate) string { return t.Name }},
			{Head: "PROVIDER", Cell: func(t client.AdminTemplate) string { return t.Provider }},
			{Head: "STATE", Cell: func(t client.AdminTemplate) string { return t.State }, Color: func(t client.AdminTemplate) table.Color { return colorOf(t.State) }},
			{Head: "STEP", Cell: lastStep},
			{Head: "LANGUAGES", Cell: func(t client.AdminTemplate) string { return strings.Join(t.Languages, ",") }},
			{Head: "REASON", Cell: func(t client.AdminTemplate) string { return t.Reason }},
			{Head: "SOURCE", Wide: true, Cell: func(t client.AdminTemplate) string { return t.Source }},
			{Head: "IMAGE", Wide: true, Cell: func(t client.AdminTemplate) string { return t.Image }},
		},
		name: func(t client.AdminTemplate) string { return t.Name },
	}
}

// lastStep is what a build does that goes on.
func lastStep(t client.AdminTemplate) string {
	if t.State != "building" || len(t.Steps) == 0 {
		return ""
	}
	step := t.Steps[len(t.Steps)-1]
	switch {
	case step.Total > 0 && step.Done > 0:
		return fmt.Sprintf("%s, %d %%", step.Step, min(100, 100*step.Done/step.Total))
	case step.Done > 0:
		return fmt.Sprintf("%s, %d MiB", step.Step, step.Done>>20)
	default:
		return step.Step
	}
}

// TemplateAdd adds a template or changes one.
type TemplateAdd struct {
	Template string   `arg:"" help:"Its name: a-z, 0-9, _, . and -."`
	From     string   `required:"" placeholder:"IMAGE" help:"The image, such as docker.io/library/python:3.12-slim."`
	Package  []string `sep:"none" placeholder:"NAME" help:"A package of Python to install in it. Again for more."`
	Start    string   `placeholder:"COMMAND" help:"A command for bash from the start of each instance on."`
	Ready    string   `placeholder:"COMMAND" help:"A command for bash that succeeds when the instance is ready."`
	MemoryMB int64    `name:"memory-mb" placeholder:"MIB" help:"Memory of each instance."`
	CPUs     float64  `name:"cpus" placeholder:"N" help:"CPU time of each instance."`
	Provider []string `short:"p" placeholder:"ID" help:"A provider on which it is built; all that can unless given. Again for more." complete:"providers"`
	Tenant   []string `placeholder:"NAME" help:"A tenant that may use it; all unless given. Again for more." complete:"tenants"`
	DryRun   bool     `help:"Only say what would change."`
	Connection
}

// Run changes the configuration.
func (c *TemplateAdd) Run(ctx context.Context, console *Console) error {
	return changeTemplate(ctx, console, &c.Connection, c.Template, client.Request{
		Method: http.MethodPut, Path: pathTemplates + "/" + url.PathEscape(c.Template), Body: client.AdminTemplateSettings{
			From: c.From, Packages: c.Package, Start: c.Start, Ready: c.Ready, MemoryMB: c.MemoryMB, CPUs: c.CPUs,
			Providers: c.Provider, Tenants: c.Tenant, DryRun: c.DryRun,
		},
	})
}

// changeTemplate prints what has changed, and of a dry run what would.
func changeTemplate(ctx context.Context, console *Console, connection *Connection, name string, req client.Request) error {
	broker, err := connection.Client(console)
	if err != nil {
		return err
	}
	_, changed, err := answered[client.AdminTemplateChanged](ctx, broker, req)
	if err != nil {
		return err
	}
	if changed.Difference != nil {
		_, err = fmt.Fprint(console.Out, *changed.Difference)
		return err
	}
	_, err = fmt.Fprintln(console.Out, name)
	return err
}

// TemplateBuild builds a template anew.
type TemplateBuild struct {
	Template string `arg:"" help:"Its name."`
	Output
	Connection
}

// Run has it built, and shows how that begins.
func (c *TemplateBuild) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	answer, list, err := answered[client.AdminTemplateList](ctx, broker, client.Request{
		Method: http.MethodPost, Path: pathTemplates + "/" + url.PathEscape(c.Template) + "/build",
	})
	if err != nil {
		return err
	}
	return builds().print(console, c.Output.Output, list.Data, answer)
}

// TemplateRm removes a template.
type TemplateRm struct {
	Template string `arg:"" help:"Its name."`
	Connection
}

// Run removes it.
func (c *TemplateRm) Run(ctx context.Context, console *Console) error {
	return changeTemplate(ctx, console, &c.Connection, c.Template, client.Request{
		Method: http.MethodDelete, Path: pathTemplates + "/" + url.PathEscape(c.Template),
	})
}
