package api

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// TenantConfigurator changes tenants for administrators; admin.Configurator is it.
type TenantConfigurator interface {
	Tenants() (tenants []admin.Tenant, revision string)
	Tenant(name string) (t admin.Tenant, revision string, err error)
	AddTenant(ctx context.Context, req admin.TenantSettings) (admin.NewToken, error)
	ChangeTenant(ctx context.Context, req admin.TenantSettings) (admin.Outcome, error)
	RemoveTenant(ctx context.Context, name string, ifMatch []string) (admin.Outcome, error)
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

// adminTenantRoutes are about tenants and their tokens.
func (s *Server) adminTenantRoutes() {
	look := func(path, id, summary string, codes ...sdk.Code) operation {
		return operation{
			method: http.MethodGet, path: path, id: id, tag: tagAdmin, admin: true, tagged: true,
			summary: summary, success: []int{http.StatusOK}, codes: codes,
		}
	}
	change := func(method, path, id, summary, details string, success int, codes ...sdk.Code) operation {
		return operation{
			method: method, path: path, id: id, tag: tagAdmin, admin: true, tagged: true, conditional: true,
			summary: summary, details: details, success: []int{success},
			codes: append(codes, sdk.CodeInvalidConfig, sdk.CodeConflict, sdk.CodeUnavailable),
		}
	}
	const tokenOnce = "The answer has the token. It is the only time that it can be seen."
	register(s, look(pathTenants, "adminListTenants", "List the tenants"), s.adminListTenants)
	register(s, look(pathTenant, "adminGetTenant", "Look at a tenant", sdk.CodeNotFound), s.adminGetTenant)
	register(s, change(http.MethodPost, pathTenants, "adminAddTenant", "Add a tenant with a token", tokenOnce, http.StatusCreated), s.adminAddTenant)
	register(s, change(http.MethodPatch, pathTenant, "adminChangeTenant", "Change what a tenant may use",
		"For requests that come from then on. Instances on a provider that it may no longer use live on to their end.", http.StatusOK, sdk.CodeNotFound), s.adminChangeTenant)
	register(s, change(http.MethodDelete, pathTenant, "adminRemoveTenant", "Let a tenant in no more",
		"Its instances are destroyed, what runs in them is cancelled, and links, kept answers and what was used of quotas end with it: who gets the name later gets nothing else.", http.StatusOK, sdk.CodeNotFound), s.adminRemoveTenant)
	register(s, change(http.MethodPost, pathTokens, "adminAddToken", "Give a tenant a further token", tokenOnce, http.StatusCreated, sdk.CodeNotFound), s.adminAddToken)
	register(s, change(http.MethodPost, pathToken+"/rotate", "adminRotateToken", "Replace a token by a new one",
		"The old one lets nobody in from then on. "+tokenOnce+" To change clients without a gap, add a token, and revoke the old one later.", http.StatusOK, sdk.CodeNotFound), s.adminRotateToken)
	register(s, change(http.MethodDelete, pathToken, "adminRevokeToken", "Revoke a token",
		"It lets nobody in from then on. The last token of a tenant cannot be revoked.", http.StatusOK, sdk.CodeNotFound), s.adminRevokeToken)
}

func (s *Server) adminListTenants(context.Context, call[none]) (int, AdminTenantList, error) {
	tenants, revision := s.tenantConfigurator.Tenants()
	list := AdminTenantList{Data: []AdminTenant{}, revision: revision}
	for _, t := range tenants {
		list.Data = append(list.Data, adminTenantOf(t))
	}
	return http.StatusOK, list, nil
}

func (s *Server) adminGetTenant(_ context.Context, c call[none]) (int, AdminTenantAnswer, error) {
	t, revision, err := s.tenantConfigurator.Tenant(c.path["name"])
	return http.StatusOK, AdminTenantAnswer{Data: adminTenantOf(t), revision: revision}, err
}

func (s *Server) adminAddTenant(ctx context.Context, c call[AdminTenantRequest]) (int, AdminNewToken, error) {
	req := admin.TenantSettings{Name: c.body.Name, Providers: c.body.Providers}
	var err error
	if req.Quota, err = settingsOf(c.body.Quota); err != nil {
		return 0, AdminNewToken{}, err
	}
	if req.IfMatch, err = revisions(c.ifMatch); err != nil {
		return 0, AdminNewToken{}, err
	}
	added, err := s.tenantConfigurator.AddTenant(ctx, req)
	return s.newToken(http.StatusCreated, "Tenant added", c.body.Name, added, err)
}

func (s *Server) adminChangeTenant(ctx context.Context, c call[AdminTenantChange]) (int, AdminTenantChanged, error) {
	req := admin.TenantSettings{Name: c.path["name"]}
	if c.body.Providers != nil {
		req.Providers = append([]string{}, *c.body.Providers...)
	}
	var err error
	if req.Quota, err = settingsOf(c.body.Quota); err != nil {
		return 0, AdminTenantChanged{}, err
	}
	if req.IfMatch, err = revisions(c.ifMatch); err != nil {
		return 0, AdminTenantChanged{}, err
	}
	outcome, err := s.tenantConfigurator.ChangeTenant(ctx, req)
	return s.tenantChanged("Tenant changed", req.Name, outcome, err)
}

func (s *Server) adminRemoveTenant(ctx context.Context, c call[none]) (int, AdminTenantChanged, error) {
	ifMatch, err := revisions(c.ifMatch)
	if err != nil {
		return 0, AdminTenantChanged{}, err
	}
	outcome, err := s.tenantConfigurator.RemoveTenant(ctx, c.path["name"], ifMatch)
	return s.tenantChanged("Tenant removed", c.path["name"], outcome, err)
}

func (s *Server) adminAddToken(ctx context.Context, c call[none]) (int, AdminNewToken, error) {
	ifMatch, err := revisions(c.ifMatch)
	if err != nil {
		return 0, AdminNewToken{}, err
	}
	added, err := s.tenantConfigurator.AddToken(ctx, c.path["name"], ifMatch)
	return s.newToken(http.StatusCreated, "Token added", c.path["name"], added, err)
}

func (s *Server) adminRotateToken(ctx context.Context, c call[none]) (int, AdminNewToken, error) {
	ifMatch, err := revisions(c.ifMatch)
	if err != nil {
		return 0, AdminNewToken{}, err
	}
	rotated, err := s.tenantConfigurator.RotateToken(ctx, c.path["name"], c.path["token"], ifMatch)
	return s.newToken(http.StatusOK, "Token replaced", c.path["name"], rotated, err)
}

func (s *Server) adminRevokeToken(ctx context.Context, c call[none]) (int, AdminTenantChanged, error) {
	ifMatch, err := revisions(c.ifMatch)
	if err != nil {
		return 0, AdminTenantChanged{}, err
	}
	outcome, err := s.tenantConfigurator.RevokeToken(ctx, c.path["name"], c.path["token"], ifMatch)
	return s.tenantChanged("Token revoked", c.path["name"], outcome, err)
}

// newToken answers a change that made a token. The tenant is shown as it is now,
// which somebody else may have changed again.
func (s *Server) newToken(status int, message, name string, made admin.NewToken, err error) (int, AdminNewToken, error) {
	if err != nil {
		return 0, AdminNewToken{}, err
	}
	t, _, _ := s.tenantConfigurator.Tenant(name)
	return status, AdminNewToken{
		Message: message, Token: made.Token, TokenID: made.ID, Data: adminTenantOf(t), Reload: adminReloadOf(made.Reload),
	}, nil
}

func (s *Server) tenantChanged(message, name string, outcome admin.Outcome, err error) (int, AdminTenantChanged, error) {
	if err != nil {
		return 0, AdminTenantChanged{}, err
	}
	answer := AdminTenantChanged{Message: message, Reload: adminReloadOf(outcome.Reload)}
	if t, _, err := s.tenantConfigurator.Tenant(name); err == nil {
		answer.Data = new(adminTenantOf(t))
	}
	return http.StatusOK, answer, nil
}

func adminTenantOf(t admin.Tenant) AdminTenant {
	shown := AdminTenant{Name: t.Name, Providers: words(t.Providers), Tokens: []AdminToken{}, Quota: t.Quota}
	for _, id := range t.Tokens {
		shown.Tokens = append(shown.Tokens, AdminToken{ID: id})
	}
	return shown
}
