package admin

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// TenantSettings asks for settings of a tenant.
type TenantSettings struct {
	Name string
	// Providers that it may use, by label: nil leaves them as they are, and an empty
	// list allows all.
	Providers []string
	// Quota by setting, as it comes out of JSON with json.Number for numbers; nil
	// removes the tenant's own, so that the one for all tenants holds. What is not
	// named stays.
	Quota   map[string]any
	IfMatch []string
}

// NewToken is the outcome of a change that made a token.
type NewToken struct {
	Outcome
	// Token is for the client. It is kept nowhere.
	Token string
	// ID is its TokenID.
	ID string
}

// AddTenant adds a tenant with one token. The errors are those of Change; SB014 also
// for a tenant that there is.
func (c *Configurator) AddTenant(ctx context.Context, req TenantSettings) (NewToken, error) {
	return c.withToken(ctx, req.Name, req.IfMatch, additionOf(req))
}

func additionOf(req TenantSettings) func(d *edit.Document, sum [sha256.Size]byte) error {
	return func(d *edit.Document, sum [sha256.Size]byte) error {
		if err := d.AddTenant(req.Name, sum); err != nil {
			return err
		}
		return setTenant(d, req)
	}
}

// ChangeTenant gives a tenant other settings. The errors are those of Change, and
// SB013.
func (c *Configurator) ChangeTenant(ctx context.Context, req TenantSettings) (Outcome, error) {
	return c.changeTenant(ctx, req.Name, req.IfMatch, changeOf(req))
}

func changeOf(req TenantSettings) func(d *edit.Document, t config.Tenant) error {
	return func(d *edit.Document, _ config.Tenant) error { return setTenant(d, req) }
}

// RemoveTenant lets a tenant in no more. What it had ends with it. The
// errors are those of Change, and SB013.
func (c *Configurator) RemoveTenant(ctx context.Context, name string, ifMatch []string) (Outcome, error) {
	return c.changeTenant(ctx, name, ifMatch, removalOf(name))
}

func removalOf(name string) func(d *edit.Document, t config.Tenant) error {
	return func(d *edit.Document, _ config.Tenant) error { return d.Remove(edit.Tenant(name)) }
}

// AddToken gives a tenant a further token. The errors are those of Change, and
// SB013.
func (c *Configurator) AddToken(ctx context.Context, name string, ifMatch []string) (NewToken, error) {
	return c.withToken(ctx, name, ifMatch, func(d *edit.Document, sum [sha256.Size]byte) error {
		if !d.Has(edit.Tenant(name)) {
			return noSuchTenant()
		}
		return d.AddToken(name, sum)
	})
}

// RotateToken puts a new token in the place of the one with that TokenID, which lets
// nobody in from then on. The errors are those of Change, and SB013.
func (c *Configurator) RotateToken(ctx context.Context, name, id string, ifMatch []string) (NewToken, error) {
	return c.withToken(ctx, name, ifMatch, func(d *edit.Document, sum [sha256.Size]byte) error {
		t, err := tenantIn(d, name)
		if err != nil {
			return err
		}
		old, err := tokenOf(t, id)
		if err != nil {
			return err
		}
		if err := d.AddToken(name, sum); err != nil {
			return err
		}
		return d.RemoveToken(name, old)
	})
}

// RevokeToken removes the token with that TokenID. The errors are those of Change,
// SB013, and SB014 for the last token of a tenant.
func (c *Configurator) RevokeToken(ctx context.Context, name, id string, ifMatch []string) (Outcome, error) {
	return c.changeTenant(ctx, name, ifMatch, func(d *edit.Document, t config.Tenant) error {
		sum, err := tokenOf(t, id)
		if err != nil {
			return err
		}
		if len(t.TokenSHA256) == 1 {
			return sdk.Errorf(sdk.CodeConflict, "this is the tenant's only token: add another first, rotate it, or remove the tenant")
		}
		return d.RemoveToken(name, sum)
	})
}

// withToken makes a change that puts a new token into the files.
func (c *Configurator) withToken(ctx context.Context, name string, ifMatch []string, change func(d *edit.Document, sum [sha256.Size]byte) error) (NewToken, error) {
	token, sum, e := tokenEdit(name, ifMatch, change)
	outcome, err := c.Change(ctx, e)
	if err != nil {
		return NewToken{}, err
	}
	return NewToken{Outcome: outcome, Token: token, ID: TokenID(sum)}, nil
}

// tokenEdit is a change that puts a new token into the files.
func tokenEdit(name string, ifMatch []string, change func(d *edit.Document, sum [sha256.Size]byte) error) (token string, sum [sha256.Size]byte, e Edit) {
	token, sum = tenant.NewToken()
	return token, sum, Edit{
		Operation: tenantOperation(name), IfMatch: ifMatch,
		Make: func(d *edit.Document) error { return change(d, sum) },
	}
}

// changeTenant makes a change of a tenant that there is.
func (c *Configurator) changeTenant(ctx context.Context, name string, ifMatch []string, change func(d *edit.Document, t config.Tenant) error) (Outcome, error) {
	return c.Change(ctx, tenantEdit(name, ifMatch, change))
}

// tenantEdit is a change of a tenant that there is.
func tenantEdit(name string, ifMatch []string, change func(d *edit.Document, t config.Tenant) error) Edit {
	return Edit{
		Operation: tenantOperation(name), IfMatch: ifMatch,
		Make: func(d *edit.Document) error {
			t, err := tenantIn(d, name)
			if err != nil {
				return err
			}
			return change(d, t)
		},
	}
}

func tenantOperation(name string) string { return fmt.Sprintf("tenant %q", name) }

// tenantIn is a tenant as the files have it, or SB013.
func tenantIn(d *edit.Document, name string) (config.Tenant, error) {
	cfg, diags := d.Check()
	i := slices.IndexFunc(cfg.Tenants, func(t config.Tenant) bool { return t.Name == name })
	switch {
	case i >= 0:
		return cfg.Tenants[i], nil
	case diags.HasErrors():
		return config.Tenant{}, diags
	default:
		return config.Tenant{}, noSuchTenant()
	}
}

func tokenOf(t config.Tenant, id string) ([sha256.Size]byte, error) {
	i := slices.IndexFunc(t.TokenSHA256, func(sum [sha256.Size]byte) bool { return TokenID(sum) == id })
	if i < 0 {
		return [sha256.Size]byte{}, noSuchToken()
	}
	return t.TokenSHA256[i], nil
}

// setTenant puts settings into the block of a tenant, which is there.
func setTenant(d *edit.Document, req TenantSettings) error {
	cfg, diags := d.Check()
	if diags.HasErrors() {
		return diags
	}
	var problems FieldErrors
	for _, label := range req.Providers {
		if cfg.Provider(label) == nil {
			problems = append(problems, sdk.FieldError{Field: "providers", Message: fmt.Sprintf("has %q, which is not the label of a provider in the configuration", label)})
		}
	}
	quota := quotaChange{document: d, block: edit.Quota(req.Name), schema: quotaSchema()}
	for _, name := range slices.Sorted(maps.Keys(req.Quota)) {
		if err := quota.set(name, req.Quota[name]); err != nil {
			return err
		}
	}
	if problems = append(problems, quota.problems...); len(problems) > 0 {
		return problems
	}
	if quota.removed {
		if err := d.RemoveIfEmpty(quota.block); err != nil {
			return err
		}
	}
	switch {
	case req.Providers == nil:
		return nil
	case len(req.Providers) == 0:
		return d.Unset(edit.Tenant(req.Name), "providers")
	}
	value, err := edit.Literal(req.Providers)
	if err != nil {
		return err
	}
	return d.Set(edit.Tenant(req.Name), "providers", value)
}

// quotaChange puts settings into the quota block of a tenant, which is made if need
// be.
type quotaChange struct {
	document *edit.Document
	block    edit.Block
	schema   sdk.Schema
	problems FieldErrors
	removed  bool // a setting was, so that the block may be empty
}

func (q *quotaChange) set(name string, given any) error {
	field, ok := q.schema.Field(name)
	switch {
	case !ok:
		q.problems = append(q.problems, sdk.FieldError{Field: "quota." + name, Message: "is not a quota"})
		return nil
	case given == nil && !q.document.Has(q.block):
		return nil
	case given == nil:
		q.removed = true
		return q.document.Unset(q.block, name)
	}
	typed, problems := sdk.Schema{field}.Resolve(map[string]any{name: given})
	if len(problems) > 0 {
		q.problems = append(q.problems, sdk.FieldError{Field: "quota." + name, Message: problems[0].Message})
		return nil
	}
	value, err := edit.Literal(plainly(given, typed[name]))
	if err != nil {
		return err
	}
	return q.document.Set(q.block, name, value)
}

// quotaSchema is that of a tenant's own quotas, which have no defaults.
func quotaSchema() sdk.Schema {
	for _, block := range config.Blocks() {
		if block.Type != "quota" {
			continue
		}
		schema := slices.Clone(block.Settings)
		for i := range schema {
			schema[i].Default = nil
		}
		return schema
	}
	return nil
}
