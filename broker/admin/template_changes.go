package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// TemplateSettings are all that a template is made of, but for what is the file's alone.
// Zero values are not set.
type TemplateSettings struct {
	Name, From, Start, Ready     string
	Packages, Providers, Tenants []string
	MemoryMB                     int64
	CPUs                         float64
	IfMatch                      []string
}

// PutTemplate adds a template, or puts other settings in the place of those of one. The
// errors are those of Change; SB012 for one that has settings of the file alone.
func (c *Configurator) PutTemplate(ctx context.Context, req TemplateSettings) (Outcome, error) {
	return c.Change(ctx, templateEdit(req))
}

// PreviewTemplate is what PutTemplate would do.
func (c *Configurator) PreviewTemplate(ctx context.Context, req TemplateSettings) (Preview, error) {
	return c.preview(ctx, templateEdit(req))
}

// RemoveTemplate removes a template. The errors are those of Change, and SB013.
func (c *Configurator) RemoveTemplate(ctx context.Context, name string, ifMatch []string) (Outcome, error) {
	return c.Change(ctx, templateRemoval(name, ifMatch))
}

// PreviewTemplateRemoval is what RemoveTemplate would do.
func (c *Configurator) PreviewTemplateRemoval(ctx context.Context, name string, ifMatch []string) (Preview, error) {
	return c.preview(ctx, templateRemoval(name, ifMatch))
}

func templateOperation(name string) string { return fmt.Sprintf("template %q", name) }

func templateRemoval(name string, ifMatch []string) Edit {
	return Edit{
		Operation: templateOperation(name), IfMatch: ifMatch,
		Make: func(d *edit.Document) error {
			if !d.Has(edit.Template(name)) {
				return sdk.Errorf(sdk.CodeNotFound, "there is no such template in the configuration")
			}
			return d.Remove(edit.Template(name))
		},
	}
}

func templateEdit(req TemplateSettings) Edit {
	return Edit{
		Operation: templateOperation(req.Name), IfMatch: req.IfMatch,
		Make: func(d *edit.Document) error { return putTemplate(d, req) },
	}
}

func putTemplate(d *edit.Document, req TemplateSettings) error {
	if err := config.CheckTemplateName(req.Name); err != nil {
		return FieldErrors{{Field: "name", Message: err.Error()}}
	}
	block := edit.Template(req.Name)
	if !d.Has(block) {
		if err := d.Add(block); err != nil {
			return err
		}
	} else if err := ofFileAlone(d, req.Name); err != nil {
		return err
	}
	for _, s := range []struct {
		name  string
		given bool
		value any
	}{
		{"from", req.From != "", req.From},
		{"packages", len(req.Packages) > 0, req.Packages},
		{"start", req.Start != "", req.Start},
		{"ready", req.Ready != "", req.Ready},
		{"memory_mb", req.MemoryMB != 0, req.MemoryMB},
		{"cpus", req.CPUs != 0, req.CPUs},
		{"providers", len(req.Providers) > 0, req.Providers},
		{"tenants", len(req.Tenants) > 0, req.Tenants},
	} {
		if !s.given {
			if err := d.Unset(block, s.name); err != nil {
				return err
			}
			continue
		}
		value, err := edit.Literal(s.value)
		if err != nil {
			return err
		}
		if err := d.Set(block, s.name, value); err != nil {
			return err
		}
	}
	return nil
}

// ofFileAlone refuses a template that has what names a path of this machine, or may be
// secret.
func ofFileAlone(d *edit.Document, name string) error {
	cfg, diags := d.Check()
	at := slices.IndexFunc(cfg.Templates, func(t config.Template) bool { return t.Name == name })
	switch {
	case at >= 0 && cfg.Templates[at].Rootfs != "":
		return sdk.FieldErrorf(sdk.CodeNotAllowed, "rootfs", "names a path of the broker's machine: change this template in the file")
	case at >= 0 && cfg.Templates[at].Dockerfile != "":
		return sdk.FieldErrorf(sdk.CodeNotAllowed, "dockerfile", "names a path of the broker's machine: change this template in the file")
	case at >= 0 && len(cfg.Templates[at].Env) > 0:
		return sdk.FieldErrorf(sdk.CodeNotAllowed, "env", "may be secret: change this template in the file")
	case at < 0 && diags.HasErrors():
		return diags
	}
	return nil
}
