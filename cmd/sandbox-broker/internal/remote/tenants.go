package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const pathTenants = "/api/admin/sandbox/tenants"

// Tenants has the commands for administrators about who may ask.
type Tenants struct {
	List   TenantsList   `cmd:"" default:"withargs" help:"List the tenants."`
	Show   TenantsShow   `cmd:"" help:"Show a tenant: providers, quotas and tokens."`
	Add    TenantsAdd    `cmd:"" help:"Add a tenant, and print its token, this once."`
	Set    TenantsSet    `cmd:"" help:"Change which providers a tenant may use, and its quotas."`
	Remove TenantsRemove `cmd:"" help:"Let a tenant in no more."`
	Token  TenantsToken  `cmd:"" help:"Add, replace and revoke the tokens of a tenant."`
}

// Help is shown below the usage.
func (*Tenants) Help() string {
	return `These take an administrator's token. Changes are made to the configuration file of the
broker, as by hand.

Examples:
  sandbox-broker tenants --context admin
  sandbox-broker tenants add acme --provider self_managed
  sandbox-broker tenants set acme --quota max_instances=5 --quota max_concurrent=null
  sandbox-broker tenants token rotate acme 46b42b4229cd7a39`
}

// TenantsToken has the commands about tokens.
type TenantsToken struct {
	Add    TokenAdd    `cmd:"" help:"Give a tenant a further token, and print it, this once."`
	Rotate TokenRotate `cmd:"" help:"Replace a token by a new one, and print that, this once."`
	Revoke TokenRevoke `cmd:"" help:"Let nobody in any more who has a token."`
}

func tenantList() listing[client.AdminTenant] {
	return listing[client.AdminTenant]{
		columns: []table.Column[client.AdminTenant]{
			{Head: "TENANT", Cell: func(t client.AdminTenant) string { return t.Name }},
			{Head: "PROVIDERS", Cell: func(t client.AdminTenant) string {
				if len(t.Providers) == 0 {
					return "all"
				}
				return strings.Join(t.Providers, ",")
			}},
			{Head: "TOKENS", Cell: func(t client.AdminTenant) string { return strings.Join(tokenIDs(t), ",") }},
			{Head: "QUOTA", Wide: true, Cell: quotas},
		},
		name: func(t client.AdminTenant) string { return t.Name },
	}
}

func tokenIDs(t client.AdminTenant) []string {
	ids := []string{}
	for _, token := range t.Tokens {
		ids = append(ids, token.ID)
	}
	return ids
}

func quotas(t client.AdminTenant) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(t.Quota)) {
		value, _ := json.Marshal(t.Quota[name]) // it was JSON before
		all = append(all, name+"="+string(value))
	}
	return strings.Join(all, ",")
}

// TenantsList lists the tenants.
type TenantsList struct {
	Output
	Connection
}

// Run lists.
func (c *TenantsList) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	answer, list, err := answered[client.AdminTenantList](ctx, broker, client.Request{Path: pathTenants})
	if err != nil {
		return err
	}
	return tenantList().print(console, c.Output.Output, list.Data, answer)
}

// TenantsShow shows a tenant.
type TenantsShow struct {
	Tenant string `arg:"" help:"Its name." complete:"tenants"`
	Output
	Connection
}

// Run shows one as wide as it is.
func (c *TenantsShow) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	answer, found, err := answered[client.AdminTenantAnswer](ctx, broker, client.Request{Path: pathTenants + "/" + url.PathEscape(c.Tenant)})
	if err != nil {
		return err
	}
	as := c.Output.Output
	if as == "table" {
		as = "wide"
	}
	return tenantList().print(console, as, []client.AdminTenant{found.Data}, answer)
}

// TenantsAdd adds a tenant.
type TenantsAdd struct {
	Tenant   string   `arg:"" help:"Its name: a-z, 0-9, _ and -." complete:"tenants"`
	Provider []string `short:"p" placeholder:"ID" help:"A provider that it may use; all unless given. Again for more." complete:"providers"`
	Quota    []string `sep:"none" placeholder:"NAME=VALUE" help:"A limit of its own, by the name of the configuration, such as max_instances=5. Again for more."`
	Output
	Connection
}

// Run adds it and prints its token.
func (c *TenantsAdd) Run(ctx context.Context, console *Console) error {
	quota, err := quotaOf(c.Quota)
	if err != nil {
		return usageError{err}
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	made, err := broker.Admin().AddTenant(ctx, client.AdminTenantRequest{Name: c.Tenant, Providers: c.Provider, Quota: quota})
	return printToken(console, c.Output.Output, made, err)
}

// quotaOf reads limits. What is no JSON is text, such as a duration.
func quotaOf(pairs []string) (client.JSONObject, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	all := map[string]json.RawMessage{}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok || name == "" || text == "" {
			return nil, fmt.Errorf("--quota %s: write NAME=VALUE", pair)
		}
		value := json.RawMessage(text)
		if !json.Valid(value) {
			value, _ = json.Marshal(text) // a string always can be
		}
		all[name] = value
	}
	encoded, err := json.Marshal(all)
	return client.JSONObject(encoded), err
}

// printToken prints a new token, and for a person what it is. Whatever is asked for, the
// token is in it: nobody sees it again.
func printToken(console *Console, as string, made client.AdminNewToken, err error) error {
	if err != nil {
		return err
	}
	if as == "json" {
		answer, err := json.Marshal(made)
		if err != nil {
			return err
		}
		return printJSON(console.Out, answer)
	}
	if console.watched {
		fmt.Fprintf(console.Err, "# The token %s of tenant %s. It is shown this once.\n", made.TokenID, made.Data.Name)
	}
	_, err = fmt.Fprintln(console.Out, made.Token)
	return err
}

// TenantsSet changes a tenant.
type TenantsSet struct {
	Tenant       string   `arg:"" help:"Its name." complete:"tenants"`
	Provider     []string `short:"p" xor:"providers" placeholder:"ID" help:"A provider that it may use from now on. Again for more; unless given, they stay." complete:"providers"`
	AllProviders bool     `xor:"providers" help:"It may use all providers."`
	Quota        []string `sep:"none" placeholder:"NAME=VALUE" help:"A limit of its own; NAME=null has the one for all tenants hold again. Again for more."`
	Output
	Connection
}

// Run changes what is named, and shows the tenant as it is then.
func (c *TenantsSet) Run(ctx context.Context, console *Console) error {
	quota, err := quotaOf(c.Quota)
	if err != nil {
		return usageError{err}
	}
	change := client.AdminTenantChange{Quota: quota}
	switch {
	case c.AllProviders:
		change.Providers = &[]string{}
	case len(c.Provider) > 0:
		change.Providers = &c.Provider
	case len(c.Quota) == 0:
		return usageErrorf("name what to change: --provider, --all-providers or --quota")
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	answer, changed, err := answered[client.AdminTenantChanged](ctx, broker, client.Request{
		Method: http.MethodPatch, Path: pathTenants + "/" + url.PathEscape(c.Tenant), Body: change,
	})
	if err != nil {
		return err
	}
	as := c.Output.Output
	if as == "table" {
		as = "wide"
	}
	if changed.Data == nil {
		return unreadable{errors.New("the broker's answer says nothing of the tenant")}
	}
	return tenantList().print(console, as, []client.AdminTenant{*changed.Data}, answer)
}

// TenantsRemove removes a tenant.
type TenantsRemove struct {
	Tenant string `arg:"" help:"Its name." complete:"tenants"`
	Connection
}

// Run removes it.
func (c *TenantsRemove) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	if _, err := broker.Admin().RemoveTenant(ctx, c.Tenant); err != nil {
		return err
	}
	_, err = fmt.Fprintln(console.Out, c.Tenant)
	return err
}

// TokenAdd gives a tenant a further token.
type TokenAdd struct {
	Tenant string `arg:"" help:"Its name." complete:"tenants"`
	Output
	Connection
}

// Run prints the new token.
func (c *TokenAdd) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	made, err := broker.Admin().AddToken(ctx, c.Tenant)
	return printToken(console, c.Output.Output, made, err)
}

// TokenRotate replaces a token.
type TokenRotate struct {
	Tenant string `arg:"" help:"Its name." complete:"tenants"`
	ID     string `arg:"" name:"id" help:"The token, by its ID: see tenants show."`
	Output
	Connection
}

// Run prints the new token.
func (c *TokenRotate) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	made, err := broker.Admin().RotateToken(ctx, c.Tenant, c.ID)
	return printToken(console, c.Output.Output, made, err)
}

// TokenRevoke revokes a token.
type TokenRevoke struct {
	Tenant string `arg:"" help:"Its name." complete:"tenants"`
	ID     string `arg:"" name:"id" help:"The token, by its ID: see tenants show."`
	Connection
}

// Run revokes it.
func (c *TokenRevoke) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	if _, err := broker.Admin().RevokeToken(ctx, c.Tenant, c.ID); err != nil {
		return err
	}
	_, err = fmt.Fprintln(console.Out, c.ID)
	return err
}
