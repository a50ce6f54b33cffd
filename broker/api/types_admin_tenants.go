package api

// AdminTenantList holds all tenants.
type AdminTenantList struct {
	_        struct{}      `additionalProperties:"true"`
	Data     []AdminTenant `json:"data" nullable:"false" doc:"In the order of the files."`
	revision string
}

func (a AdminTenantList) entityTag() string { return quotedTag(a.revision) }

// AdminTenantAnswer is one tenant.
type AdminTenantAnswer struct {
	_        struct{}    `additionalProperties:"true"`
	Data     AdminTenant `json:"data"`
	revision string
}

func (a AdminTenantAnswer) entityTag() string { return quotedTag(a.revision) }

// AdminTenant is a tenant as administrators see it.
type AdminTenant struct {
	_         struct{}       `additionalProperties:"true"`
	Name      string         `json:"name" example:"acme"`
	Providers []string       `json:"providers" nullable:"false" doc:"The labels of those that it may use; empty for all."`
	Tokens    []AdminToken   `json:"tokens" nullable:"false"`
	Quota     map[string]any `json:"quota" doc:"What limits it, by the names of the configuration: its own settings, and those for all tenants that it does not have. Durations are in seconds. What is not here has no limit."`
}

// AdminToken is a token that nobody can see any more.
type AdminToken struct {
	_  struct{} `additionalProperties:"true"`
	ID string   `json:"id" doc:"The first 16 digits of its SHA-256 sum, as it stands in the configuration." example:"46b42b4229cd7a39"`
}

// AdminTenantRequest adds a tenant.
type AdminTenantRequest struct {
	Name      string     `json:"name" maxLength:"32" pattern:"^[a-z0-9][a-z0-9_-]*$" patternDescription:"a-z, 0-9, _ and -, and begin with a letter or digit"`
	Providers []string   `json:"providers,omitempty" nullable:"false" maxItems:"1000" doc:"The labels of those that it may use; all unless given."`
	Quota     JSONObject `json:"quota,omitempty" doc:"Its own quotas, by the names of the configuration."`
}

// AdminTenantChange gives a tenant other settings.
type AdminTenantChange struct {
	Providers *[]string  `json:"providers,omitempty" maxItems:"1000" doc:"The labels of those that it may use from now on; an empty list for all. Unless given they stay."`
	Quota     JSONObject `json:"quota,omitempty" doc:"Quotas by the names of the configuration. Those that are not named stay; null removes its own, so that the one for all tenants holds."`
}

// AdminTenantChanged is the answer to a change of a tenant that is in force.
type AdminTenantChanged struct {
	_       struct{}     `additionalProperties:"true"`
	Message string       `json:"message"`
	Data    *AdminTenant `json:"data,omitempty" doc:"The tenant as it is now; absent if it was removed."`
	Reload  AdminReload  `json:"reload"`
}

func (a AdminTenantChanged) entityTag() string { return quotedTag(a.Reload.Revision) }

// AdminNewToken is the answer to a change that made a token.
type AdminNewToken struct {
	_       struct{}    `additionalProperties:"true"`
	Message string      `json:"message"`
	Token   string      `json:"token" doc:"The token, for the client. It is shown this once: the configuration has only its sum. Empty in an answer that is given again for its Idempotency-Key."`
	TokenID string      `json:"token_id"`
	Data    AdminTenant `json:"data" doc:"The tenant as it is now."`
	Reload  AdminReload `json:"reload"`
}

func (a AdminNewToken) entityTag() string { return quotedTag(a.Reload.Revision) }
