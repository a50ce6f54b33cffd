package admin

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/difference"
	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Preview is what a change would do.
type Preview struct {
	Reload Reload
	// Difference is a unified diff of the files, without secrets.
	Difference string
	// Revision of the files as they are, for IfMatch of the change itself.
	Revision string
}

// preview says what a change would do, and does not. Plugins that would be started are, to
// check their settings; they are not configured. Mistakes in what would come out are part
// of what it says; other errors are those of Change.
func (c *Configurator) preview(ctx context.Context, e Edit) (Preview, error) {
	d := &draft{configurator: c, edit: e}
	err := d.Renew()
	mistakes, refused := errors.AsType[config.Diagnostics](err)
	if err != nil && !refused {
		return Preview{}, err
	}
	p := Preview{Reload: Reload{
		Trigger: TriggerAPI, Operation: e.Operation, DryRun: true, Generation: c.daemon.InForce().Number,
		Diagnostics: d.warnings.With(mistakes),
	}}
	if !refused {
		done, err := c.beginTrial() // it starts the providers that are new
		if err != nil {
			return Preview{}, err
		}
		defer done()
		if p.Reload, err = c.daemon.Preview(ctx, p.Reload, d.config); err != nil {
			return Preview{}, err
		}
	}
	if d.document != nil {
		p.Revision = d.document.Revision()
		p.Difference, err = c.difference(d.document.Texts())
	}
	return p, err
}

// difference shows how files differ.
func (c *Configurator) difference(texts []edit.Text) (string, error) {
	var files []difference.File
	for _, t := range texts {
		files = append(files, difference.File{Name: t.Name, Before: t.Before, After: t.After})
	}
	schemas, plugins, inForce := map[string]sdk.Schema{}, map[string]string{}, c.daemon.InForce()
	for _, p := range inForce.Providers {
		schemas[p.Label] = p.Schema
	}
	for _, block := range inForce.Config.Providers {
		plugins[block.Label] = block.Plugin
	}
	return difference.Unified(files, difference.Secrets{Schemas: schemas, Plugins: plugins, Mask: mask})
}

// PreviewProvider is what SaveProvider would do. Test is ignored.
func (c *Configurator) PreviewProvider(ctx context.Context, req ProviderSettings) (Preview, error) {
	return c.preview(ctx, c.providerEdit(ctx, req))
}

// PreviewActivation is what Activate would do.
func (c *Configurator) PreviewActivation(ctx context.Context, req Activation) (Preview, error) {
	return c.preview(ctx, activationEdit(req))
}

// PreviewNewTenant is what AddTenant would do. The token in it is nobody's.
func (c *Configurator) PreviewNewTenant(ctx context.Context, req TenantSettings) (Preview, error) {
	_, _, e := tokenEdit(req.Name, req.IfMatch, additionOf(req))
	return c.preview(ctx, e)
}

// PreviewTenant is what ChangeTenant would do.
func (c *Configurator) PreviewTenant(ctx context.Context, req TenantSettings) (Preview, error) {
	return c.preview(ctx, tenantEdit(req.Name, req.IfMatch, changeOf(req)))
}

// PreviewRemoval is what RemoveTenant would do.
func (c *Configurator) PreviewRemoval(ctx context.Context, name string, ifMatch []string) (Preview, error) {
	return c.preview(ctx, tenantEdit(name, ifMatch, removalOf(name)))
}

// PreviewRestore is what Restore would do.
func (c *Configurator) PreviewRestore(ctx context.Context, generation int, ifMatch []string) (Preview, error) {
	e, err := c.restoreEdit(generation, ifMatch)
	if err != nil {
		return Preview{}, err
	}
	return c.preview(ctx, e)
}
