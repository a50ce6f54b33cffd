package v1

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// TenantConfigurator changes tenants for administrators; admin.Configurator is it.
type TenantConfigurator interface {
	Tenants() (tenants []admin.Tenant, revision string)
	Tenant(name string) (t admin.Tenant, revision string, err error)
	AddTenant(ctx context.Context, req admin.TenantSettings) (admin.NewToken, error)
	ChangeTenant(ctx context.Context, req admin.TenantSettings) (admin.Outcome, error)
	RemoveTenant(ctx context.Context, name string, ifMatch []string) (admin.Outcome, error)
	PreviewNewTenant(ctx context.Context, req admin.TenantSettings) (admin.Preview, error)
	PreviewTenant(ctx context.Context, req admin.TenantSettings) (admin.Preview, error)
	PreviewRemoval(ctx context.Context, name string, ifMatch []string) (admin.Preview, error)
	AddToken(ctx context.Context, name string, ifMatch []string) (admin.NewToken, error)
	RotateToken(ctx context.Context, name, id string, ifMatch []string) (admin.NewToken, error)
	RevokeToken(ctx context.Context, name, id string, ifMatch []string) (admin.Outcome, error)
}

const (
	pathTenants = pathAdmin + "/tenants"
	pathTenant  = pathTenants + "/{name}"
	pathTokens  = pathTenant + "/tokens"
	pathToken   = pathTokens + "/{token}"
)

// tenantRoutes are for administrators: about tenants and their tokens.
type tenantRoutes struct{ tenants TenantConfigurator }

func (h tenantRoutes) register(a *rest.API) {
	look := func(path, id, summary string, codes ...sdk.Code) rest.Operation {
		return rest.Operation{
			Method: http.MethodGet, Path: path, ID: id, Tag: tagAdmin, Admin: true, Tagged: true,
			Summary: summary, Success: []int{http.StatusOK}, Codes: codes,
		}
	}
	change := func(method, path, id, summary, details string, success int, codes ...sdk.Code) rest.Operation {
		return rest.Operation{
			Method: method, Path: path, ID: id, Tag: tagAdmin, Admin: true, Tagged: true, Conditional: true,
			Summary: summary, Details: details, Success: []int{success},
			Codes: append(codes, sdk.CodeInvalidConfig, sdk.CodeConflict, sdk.CodeUnavailable),
		}
	}
	const tokenOnce = "The answer has the token. It is the only time that it can be seen."
	rest.Register(a, look(pathTenants, "adminListTenants", "List the tenants"), h.list)
	rest.Register(a, look(pathTenant, "adminGetTenant", "Look at a tenant", sdk.CodeNotFound), h.get)
	addition := change(http.MethodPost, pathTenants, "adminAddTenant", "Add a tenant with a token", tokenOnce+" A dry run is answered with 200.", http.StatusCreated)
	addition.Success = append(addition.Success, http.StatusOK)
	rest.Register(a, addition, h.add)
	rest.Register(a, change(http.MethodPatch, pathTenant, "adminChangeTenant", "Change what a tenant may use",
		"For requests that come from then on. Instances on a provider that it may no longer use live on to their end.", http.StatusOK, sdk.CodeNotFound), h.change)
	removal := change(http.MethodDelete, pathTenant, "adminRemoveTenant", "Let a tenant in no more",
		"Its instances are destroyed, what runs in them is cancelled, and links, kept answers and what was used of quotas end with it: who gets the name later gets nothing else.", http.StatusOK, sdk.CodeNotFound)
	removal.Query = []rest.Parameter{{Name: "dry_run", Kind: rest.Boolean, Doc: "Only say what would change."}}
	rest.Register(a, removal, h.remove)
	rest.Register(a, change(http.MethodPost, pathTokens, "adminAddToken", "Give a tenant a further token", tokenOnce, http.StatusCreated, sdk.CodeNotFound), h.addToken)
	rest.Register(a, change(http.MethodPost, pathToken+"/rotate", "adminRotateToken", "Replace a token by a new one",
		"The old one lets nobody in from then on. "+tokenOnce+" To change clients without a gap, add a token, and revoke the old one later.", http.StatusOK, sdk.CodeNotFound), h.rotateToken)
	rest.Register(a, change(http.MethodDelete, pathToken, "adminRevokeToken", "Revoke a token",
		"It lets nobody in from then on. The last token of a tenant cannot be revoked.", http.StatusOK, sdk.CodeNotFound), h.revokeToken)
}

func (h tenantRoutes) list(_ context.Context, c rest.Call[rest.None]) (int, client.AdminTenantList, error) {
	tenants, revision := h.tenants.Tenants()
	list := client.AdminTenantList{Data: []client.AdminTenant{}}
	for _, t := range tenants {
		list.Data = append(list.Data, adminTenantOf(t))
	}
	c.SetETag(revision)
	return http.StatusOK, list, nil
}

func (h tenantRoutes) get(_ context.Context, c rest.Call[rest.None]) (int, client.AdminTenantAnswer, error) {
	t, revision, err := h.tenants.Tenant(c.Path["name"])
	c.SetETag(revision)
	return http.StatusOK, client.AdminTenantAnswer{Data: adminTenantOf(t)}, err
}

func (h tenantRoutes) add(ctx context.Context, c rest.Call[client.AdminTenantRequest]) (int, client.AdminNewToken, error) {
	quota, err := settingsOf(c.Body.Quota)
	if err != nil {
		return 0, client.AdminNewToken{}, err
	}
	req := admin.TenantSettings{Name: c.Body.Name, Providers: c.Body.Providers, Quota: quota}
	if c.Body.DryRun {
		answer, err := tenantPreviewed(h, c, func(ifMatch []string) (admin.Preview, error) {
			req.IfMatch = ifMatch
			return h.tenants.PreviewNewTenant(ctx, req)
		})
		none := adminTenantOf(admin.Tenant{Quota: map[string]any{}})
		return http.StatusOK, client.AdminNewToken{Message: answer.Message, Data: none, Reload: answer.Reload, Difference: answer.Difference}, err
	}
	return newToken(h, c, http.StatusCreated, "Tenant added", c.Body.Name, func(ifMatch []string) (admin.NewToken, error) {
		req.IfMatch = ifMatch
		return h.tenants.AddTenant(ctx, req)
	})
}

func (h tenantRoutes) change(ctx context.Context, c rest.Call[client.AdminTenantChange]) (int, client.AdminTenantChanged, error) {
	req := admin.TenantSettings{Name: c.Path["name"]}
	if c.Body.Providers != nil {
		req.Providers = append([]string{}, *c.Body.Providers...)
	}
	var err error
	if req.Quota, err = settingsOf(c.Body.Quota); err != nil {
		return 0, client.AdminTenantChanged{}, err
	}
	if c.Body.DryRun {
		answer, err := tenantPreviewed(h, c, func(ifMatch []string) (admin.Preview, error) {
			req.IfMatch = ifMatch
			return h.tenants.PreviewTenant(ctx, req)
		})
		return http.StatusOK, answer, err
	}
	return tenantChanged(h, c, "Tenant changed", func(ifMatch []string) (admin.Outcome, error) {
		req.IfMatch = ifMatch
		return h.tenants.ChangeTenant(ctx, req)
	})
}

func (h tenantRoutes) remove(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminTenantChanged, error) {
	if c.Query.Boolean("dry_run") {
		answer, err := tenantPreviewed(h, c, func(ifMatch []string) (admin.Preview, error) {
			return h.tenants.PreviewRemoval(ctx, c.Path["name"], ifMatch)
		})
		return http.StatusOK, answer, err
	}
	return tenantChanged(h, c, "Tenant removed", func(ifMatch []string) (admin.Outcome, error) {
		return h.tenants.RemoveTenant(ctx, c.Path["name"], ifMatch)
	})
}

func (h tenantRoutes) addToken(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminNewToken, error) {
	return newToken(h, c, http.StatusCreated, "Token added", c.Path["name"], func(ifMatch []string) (admin.NewToken, error) {
		return h.tenants.AddToken(ctx, c.Path["name"], ifMatch)
	})
}

func (h tenantRoutes) rotateToken(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminNewToken, error) {
	return newToken(h, c, http.StatusOK, "Token replaced", c.Path["name"], func(ifMatch []string) (admin.NewToken, error) {
		return h.tenants.RotateToken(ctx, c.Path["name"], c.Path["token"], ifMatch)
	})
}

func (h tenantRoutes) revokeToken(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminTenantChanged, error) {
	return tenantChanged(h, c, "Token revoked", func(ifMatch []string) (admin.Outcome, error) {
		return h.tenants.RevokeToken(ctx, c.Path["name"], c.Path["token"], ifMatch)
	})
}

// shownOnce stands in the message of an answer that is given again.
const shownOnce = ". The token was shown in the first answer to this Idempotency-Key and cannot be shown again: if it was lost, rotate it."

// newToken answers a change that makes a token. The tenant is shown as it is then,
// which somebody else may have changed again.
func newToken[In any](h tenantRoutes, c rest.Call[In], status int, message, name string, change func(ifMatch []string) (admin.NewToken, error)) (int, client.AdminNewToken, error) {
	ifMatch, err := revisions(c.IfMatch)
	if err != nil {
		return 0, client.AdminNewToken{}, err
	}
	made, err := change(ifMatch)
	if err != nil {
		return 0, client.AdminNewToken{}, err
	}
	t, _, _ := h.tenants.Tenant(name)
	answer := client.AdminNewToken{Message: message, Token: made.Token, TokenID: made.ID, Data: adminTenantOf(t), Reload: adminReloadOf(made.Reload)}
	again := answer
	again.Token, again.Message = "", message+shownOnce
	c.SetETag(made.Reload.Revision)
	return status, answer, c.Withhold(again)
}

// tenantChanged answers a change of the tenant in the path, which may be gone by it.
func tenantChanged[In any](h tenantRoutes, c rest.Call[In], message string, change func(ifMatch []string) (admin.Outcome, error)) (int, client.AdminTenantChanged, error) {
	ifMatch, err := revisions(c.IfMatch)
	if err != nil {
		return 0, client.AdminTenantChanged{}, err
	}
	outcome, err := change(ifMatch)
	answer := client.AdminTenantChanged{Message: message, Reload: adminReloadOf(outcome.Reload)}
	if t, _, err := h.tenants.Tenant(c.Path["name"]); err == nil {
		answer.Data = new(adminTenantOf(t))
	}
	c.SetETag(outcome.Reload.Revision)
	return http.StatusOK, answer, err
}

// tenantPreviewed answers a dry run with the tenant as it is.
func tenantPreviewed[In any](h tenantRoutes, c rest.Call[In], preview func(ifMatch []string) (admin.Preview, error)) (client.AdminTenantChanged, error) {
	ifMatch, err := revisions(c.IfMatch)
	if err != nil {
		return client.AdminTenantChanged{}, err
	}
	p, err := preview(ifMatch)
	if err != nil {
		return client.AdminTenantChanged{}, err
	}
	answer := client.AdminTenantChanged{Message: onlyPreviewed, Reload: adminReloadOf(p.Reload), Difference: &p.Difference}
	if t, _, err := h.tenants.Tenant(c.Path["name"]); err == nil {
		answer.Data = new(adminTenantOf(t))
	}
	c.SetETag(p.Revision)
	return answer, nil
}

func adminTenantOf(t admin.Tenant) client.AdminTenant {
	shown := client.AdminTenant{Name: t.Name, Providers: words(t.Providers), Tokens: []client.AdminToken{}, Quota: t.Quota}
	for _, id := range t.Tokens {
		shown.Tokens = append(shown.Tokens, client.AdminToken{ID: id})
	}
	return shown
}
