package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// AdminProviderList is how all providers are. As everything for administrators, it
// stands below data.
type AdminProviderList struct {
	_    struct{}        `additionalProperties:"true"`
	Data []AdminProvider `json:"data" nullable:"false" doc:"In the order of the configuration."`
}

// AdminProviderAnswer is how one provider is.
type AdminProviderAnswer struct {
	_    struct{}      `additionalProperties:"true"`
	Data AdminProvider `json:"data"`
}

// AdminProvider is a provider as administrators see it. It holds no settings.
type AdminProvider struct {
	_                  struct{}              `additionalProperties:"true"`
	ID                 string                `json:"id" doc:"Its label in the configuration." example:"self_managed"`
	Name               string                `json:"name" example:"Self Managed"`
	Description        string                `json:"description"`
	Icon               string                `json:"icon" doc:"The name of an icon, or a data URI of an image; empty if its plugin has none."`
	Tags               []string              `json:"tags" nullable:"false" doc:"Words of its plugin to choose by."`
	Active             bool                  `json:"active" doc:"Used when a request names none."`
	SupportedLanguages []string              `json:"supported_languages" nullable:"false"`
	Templates          []Template            `json:"templates" nullable:"false"`
	Capabilities       []string              `json:"capabilities" nullable:"false"`
	ConfigSchema       map[string]AdminField `json:"config_schema" doc:"The settings that it takes, by name."`
	Plugin             AdminPlugin           `json:"plugin"`
	State              string                `json:"state" doc:"ready, or a word that says why not." example:"ready"`
	Healthy            bool                  `json:"healthy" doc:"Whether it takes work."`
	Reason             string                `json:"reason,omitempty" doc:"Why it does not."`
	Since              time.Time             `json:"since" doc:"When it came into this state."`
	Restarts           int                   `json:"restarts" doc:"Processes after the first."`
	Draining           int                   `json:"draining" doc:"Earlier processes that another took over from and that serve their last instances. A provider that was removed from the configuration is listed, in the state draining, as long as there are such."`
	PID                int                   `json:"pid,omitempty" doc:"Of its process; absent while there is none."`
	NextTry            time.Time             `json:"next_try,omitempty,omitzero" doc:"When it is started again; absent while it runs."`
	LastError          *AdminFailure         `json:"last_error,omitempty" doc:"Why a process of its ended, or did not start, the last time; absent if none did."`
	Details            map[string]string     `json:"details,omitempty" doc:"Facts from its last health probe."`
	Circuit            AdminCircuit          `json:"circuit" doc:"How its creations have gone of late."`
}

// AdminCircuit says whether new instances are asked of a provider.
type AdminCircuit struct {
	_               struct{}  `additionalProperties:"true"`
	State           string    `json:"state" enum:"closed,open,half_open" doc:"closed: it is asked in its turn. open: others are asked first, because its creations failed. half_open: one request is let through, to see."`
	Failures        int       `json:"failures" doc:"Creations that failed in a row."`
	Until           time.Time `json:"until,omitempty,omitzero" doc:"When an open one lets a request through."`
	CreationSeconds float64   `json:"creation_seconds,omitempty" doc:"How long creations took on average, the last ones most; absent if there was none."`
}

// AdminPlugin is the program behind a provider.
type AdminPlugin struct {
	_       struct{} `additionalProperties:"true"`
	Name    string   `json:"name" doc:"As it calls itself; empty if it never said it."`
	Version string   `json:"version"`
	File    string   `json:"file" doc:"The executable's name in the plugin directory."`
	Path    string   `json:"path"`
	SHA256  string   `json:"sha256,omitempty" doc:"The sum of the program that runs, whatever its file is now; absent while none runs, and for scripts."`
	Pinned  bool     `json:"pinned" doc:"Whether the configuration accepts no other sum."`
}

// AdminFailure is the end of a process.
type AdminFailure struct {
	_       struct{}  `additionalProperties:"true"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
	Stderr  string    `json:"stderr,omitempty" doc:"The end of what it wrote to its standard error, at most 8 KiB. Secrets of its settings are blanked."`
}

// AdminField is a setting that a provider takes.
type AdminField struct {
	_           struct{} `additionalProperties:"true"`
	Position    int      `json:"position" doc:"Its place among the others, from 0."`
	Type        string   `json:"type" enum:"string,integer,number,boolean,duration,list,map,block"`
	Required    bool     `json:"required"`
	Secret      bool     `json:"secret" doc:"Its value is never shown; nor is its default."`
	FileOnly    bool     `json:"file_only" doc:"It names a program, a path or an address, and is changed in the configuration file alone."`
	Label       string   `json:"label"`
	Description string   `json:"description,omitempty"`
	Placeholder string   `json:"placeholder,omitempty"`
	Default     any      `json:"default,omitempty" doc:"A duration is text, such as 30s."`
	Options     []string `json:"options,omitempty" nullable:"false" doc:"The values that are allowed; absent if all are."`
	Min         *float64 `json:"min,omitempty" doc:"Of a number, of a duration in seconds, of the length of a text or list, of how often a block stands."`
	Max         *float64 `json:"max,omitempty"`
	Pattern     string   `json:"pattern,omitempty" doc:"RE2, for the whole text."`

	Items *AdminItems `json:"items,omitempty" doc:"What the items of a list are; strings without it."`

	Fields   map[string]AdminField `json:"fields,omitempty" doc:"The settings of a block."`
	Repeated bool                  `json:"repeated,omitempty" doc:"The block may stand several times, from min to max; its value is then a list."`
}

// AdminItems is what the items of a list are.
type AdminItems struct {
	_       struct{} `additionalProperties:"true"`
	Type    string   `json:"type" enum:"string,integer,number"`
	Options []string `json:"options,omitempty" nullable:"false" doc:"The values that are allowed; absent if all are."`
	Min     *float64 `json:"min,omitempty"`
	Max     *float64 `json:"max,omitempty"`
	Pattern string   `json:"pattern,omitempty" doc:"RE2, for the whole text."`
}

// AdminConfig is the configuration in force.
type AdminConfig struct {
	_    struct{}        `additionalProperties:"true"`
	Data AdminSettings   `json:"data"`
	Meta AdminConfigMeta `json:"meta"`
}

// AdminSettings has "active", and the settings of each provider under its label.
type AdminSettings map[string]any

// AdminConfigMeta is what there is to know about the configuration.
type AdminConfigMeta struct {
	_           struct{}                          `additionalProperties:"true"`
	Fallback    []string                          `json:"fallback" nullable:"false" doc:"The labels of those that take over from the active provider, in this order."`
	Generation  int                               `json:"generation" doc:"Counts what came in force, from 1."`
	AcceptedAt  time.Time                         `json:"accepted_at"`
	Revision    string                            `json:"revision" doc:"A sum over all files; the ETag."`
	Files       []string                          `json:"files" nullable:"false" doc:"The main file and those that it includes."`
	Writable    bool                              `json:"writable" doc:"Whether the files can be changed here."`
	ReadOnly    string                            `json:"read_only,omitempty" doc:"Why they cannot."`
	Differs     bool                              `json:"differs" doc:"Whether the files are not those in force: they were refused, or changed a moment ago. A change with this ETag is a conflict then."`
	Seals       bool                              `json:"seals" doc:"Whether there is a key to seal secrets with."`
	Origins     map[string]map[string]AdminOrigin `json:"origins" nullable:"false" doc:"By provider and setting, where values come from."`
	LastRefused *AdminReload                      `json:"last_refused,omitempty" doc:"The last attempt to change the configuration that was refused; absent if there was none."`
}

// AdminOrigin says where the value of a setting comes from.
type AdminOrigin struct {
	_      struct{} `additionalProperties:"true"`
	Origin string   `json:"origin" enum:"default,literal,sealed,env,file,computed" doc:"literal stands in the file; what env, file and computed give is changed there and not here."`
	Name   string   `json:"name,omitempty" doc:"Of the environment variable, or the path of the file."`
	Masked bool     `json:"masked" doc:"Whether the value is not shown as it is. Sent back as it is shown, it stays what it is."`
}

// AdminReload is an attempt to change the configuration.
type AdminReload struct {
	_           struct{}          `additionalProperties:"true"`
	Result      string            `json:"result" enum:"applied,refused,unchanged,would_apply" doc:"would_apply is of a dry run, in place of applied."`
	Generation  int               `json:"generation" doc:"That was in force afterwards; a new one if it was applied."`
	At          time.Time         `json:"at" doc:"When it was over."`
	TookMS      float64           `json:"took_ms"`
	Trigger     string            `json:"trigger" enum:"start,file,signal,api,plugin" doc:"What made the broker look: its start, a changed file, SIGHUP, an administrator, or the executable of a plugin that was replaced."`
	Operation   string            `json:"operation,omitempty" doc:"What an administrator changed; absent where the files were read as they are." example:"provider \"e2b\""`
	Revision    string            `json:"revision" doc:"Of the configuration that was tried."`
	Change      AdminChange       `json:"change"`
	Diagnostics []AdminDiagnostic `json:"diagnostics" nullable:"false" doc:"Why it was refused, and warnings."`
	Restorable  bool              `json:"restorable,omitempty" doc:"Whether the files of the generation that it made are kept, so that they can be restored."`
}

// AdminChange is what differs from what was in force before.
type AdminChange struct {
	_              struct{}              `additionalProperties:"true"`
	Providers      []AdminProviderChange `json:"providers" nullable:"false"`
	TenantsAdded   []string              `json:"tenants_added" nullable:"false"`
	TenantsRemoved []string              `json:"tenants_removed" nullable:"false"`
	TenantsChanged []string              `json:"tenants_changed" nullable:"false"`
	Settings       []string              `json:"settings" nullable:"false" doc:"Blocks and settings outside of providers and tenants." example:"[\"limits\"]"`
}

// AdminProviderChange is what happens to a provider.
type AdminProviderChange struct {
	_        struct{} `additionalProperties:"true"`
	Provider string   `json:"provider"`
	Action   string   `json:"action" enum:"start,restart,stop"`
	Draining int      `json:"draining" doc:"Instances that live on in the process that was there."`
}

// AdminDiagnostic is a mistake in the configuration, or a warning.
type AdminDiagnostic struct {
	_         struct{} `additionalProperties:"true"`
	Severity  string   `json:"severity" enum:"error,warning"`
	File      string   `json:"file"`
	Line      int      `json:"line,omitempty" doc:"From 1; absent where it is about a whole file."`
	Column    int      `json:"column,omitempty"`
	EndLine   int      `json:"end_line,omitempty"`
	EndColumn int      `json:"end_column,omitempty"`
	Within    string   `json:"within,omitempty" example:"provider \"e2b\""`
	Setting   string   `json:"setting,omitempty" doc:"The setting at fault, if one is." example:"pool_size"`
	Summary   string   `json:"summary"`
	Detail    string   `json:"detail,omitempty"`
}

// AdminConfigRequest gives a provider other settings.
type AdminConfigRequest struct {
	ProviderType string     `json:"provider_type,omitempty" maxLength:"63" doc:"The label of the provider. One that there is not is added, with the plugin of that name unless plugin names another."`
	Provider     string     `json:"provider,omitempty" maxLength:"63" doc:"The same; one of the two is needed."`
	Plugin       string     `json:"plugin,omitempty" maxLength:"63" doc:"For a provider that there is not: the name of its executable in the plugin directory."`
	Config       JSONObject `json:"config" doc:"Settings by name. Those that are not named stay as they are; null removes one, so that its default holds. A value that comes as it is shown changes nothing."`
	Test         bool       `json:"test_connection,omitempty" doc:"Try the provider first, and change nothing if it is not well."`
	SetActive    *bool      `json:"set_active,omitempty" doc:"Make it the active provider; true unless given."`
	DryRun       bool       `json:"dry_run,omitempty" doc:"Only say what would change. Plugins are started to check their settings, and not configured."`
}

// AdminTestRequest asks whether a provider would work.
type AdminTestRequest struct {
	ProviderType string     `json:"provider_type,omitempty" maxLength:"63" doc:"The label of the provider, or the name of a plugin that is not configured yet."`
	Provider     string     `json:"provider,omitempty" maxLength:"63" doc:"The same; one of the two is needed."`
	Plugin       string     `json:"plugin,omitempty" maxLength:"63" doc:"For a provider that there is not: the name of its executable in the plugin directory."`
	Config       JSONObject `json:"config,omitempty" doc:"Settings over those that it has."`
}

// AdminTest says whether a provider works.
type AdminTest struct {
	_           struct{}          `additionalProperties:"true"`
	Success     bool              `json:"success"`
	Message     string            `json:"message"`
	LatencyMS   float64           `json:"latency_ms" doc:"How long it took to accept its settings and to answer that it is well."`
	Code        string            `json:"code,omitempty" doc:"Of the error, if there was one." example:"SB002"`
	Field       string            `json:"field,omitempty" doc:"The field at fault, if one is." example:"config.api_key"`
	Details     map[string]string `json:"details" nullable:"false" doc:"Facts from its health probe."`
	Diagnostics []AdminDiagnostic `json:"diagnostics,omitempty" nullable:"false"`
}

// AdminActiveRequest chooses the active provider.
type AdminActiveRequest struct {
	Provider string    `json:"provider" minLength:"1" maxLength:"63" doc:"Its label."`
	Fallback *[]string `json:"fallback,omitempty" maxItems:"100" doc:"The labels of those that take over from it, in this order. Unless given, the list stays as it is written; the provider itself is passed over in it."`
	DryRun   bool      `json:"dry_run,omitempty" doc:"Only say what would change."`
}

// AdminChanged is the answer to a change that is in force.
type AdminChanged struct {
	_       struct{}    `additionalProperties:"true"`
	Message string      `json:"message"`
	Data    AdminReload `json:"data"`
	Test    *AdminTest  `json:"test,omitempty" doc:"Present if test_connection was asked for."`
	AdminPreview
}

// AdminPreview is what a dry run says of a change.
type AdminPreview struct {
	Reload     *AdminReload `json:"reload,omitempty" doc:"Of a dry run: what would become of it, with the result would_apply, refused or unchanged."`
	Difference *string      `json:"difference,omitempty" doc:"Of a dry run: a unified diff of the files of the configuration. Secrets are masked; a line with another secret differs although it may look alike."`
}

// AdminReloadRequest asks for the files to be read.
type AdminReloadRequest struct {
	DryRun bool `json:"dry_run,omitempty" doc:"Only say what would change. Plugins are started to check their settings, and not configured."`
}

// AdminReloaded is what became of a reload.
type AdminReloaded struct {
	_    struct{}    `additionalProperties:"true"`
	Data AdminReload `json:"data"`
}

// AdminGenerations are the last attempts to change the configuration.
type AdminGenerations struct {
	_    struct{}      `additionalProperties:"true"`
	Data []AdminReload `json:"data" nullable:"false" doc:"The newest first."`
}

// AdminDrainRequest takes a broker out, or back.
type AdminDrainRequest struct {
	Draining bool `json:"draining" doc:"Whether it leaves new sessions to others."`
}

// AdminDrainAnswer says whether a broker drains.
type AdminDrainAnswer struct {
	_    struct{}   `additionalProperties:"true"`
	Data AdminDrain `json:"data"`
}

// AdminDrain is how far a broker is with draining.
type AdminDrain struct {
	_         struct{} `additionalProperties:"true"`
	Draining  bool     `json:"draining" doc:"Whether it leaves new sessions to others."`
	Instances int      `json:"instances" doc:"Of all tenants, that it still has, those that are being made, paused or ended included."`
}

// AdminStatusAnswer is how the broker is.
type AdminStatusAnswer struct {
	_    struct{}    `additionalProperties:"true"`
	Data AdminStatus `json:"data"`
}

// AdminStatus is how the broker is.
type AdminStatus struct {
	_          struct{}              `additionalProperties:"true"`
	Version    string                `json:"version"`
	StartedAt  time.Time             `json:"started_at"`
	Uptime     float64               `json:"uptime_seconds"`
	Generation int                   `json:"generation"`
	AcceptedAt time.Time             `json:"accepted_at" doc:"When this generation came in force."`
	Revision   string                `json:"revision"`
	Active     string                `json:"active"`
	Fallback   []string              `json:"fallback" nullable:"false"`
	Providers  []AdminProviderStatus `json:"providers" nullable:"false"`
	Instances  map[string]int        `json:"instances" nullable:"false" doc:"Of all tenants, by state: creating, unclear (nobody knows whether the provider has it), live, paused, ending."`
	LastReload *AdminReload          `json:"last_reload,omitempty" doc:"The last attempt to change the configuration."`
}

// AdminProviderStatus is how a provider is, in short.
type AdminProviderStatus struct {
	_        struct{} `additionalProperties:"true"`
	ID       string   `json:"id"`
	State    string   `json:"state" example:"ready"`
	Healthy  bool     `json:"healthy"`
	Reason   string   `json:"reason,omitempty"`
	Draining int      `json:"draining" doc:"Earlier processes that serve their last instances."`
}

// AdminTenantList holds all tenants.
type AdminTenantList struct {
	_    struct{}      `additionalProperties:"true"`
	Data []AdminTenant `json:"data" nullable:"false" doc:"In the order of the files."`
}

// AdminTenantAnswer is one tenant.
type AdminTenantAnswer struct {
	_    struct{}    `additionalProperties:"true"`
	Data AdminTenant `json:"data"`
}

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
	DryRun    bool       `json:"dry_run,omitempty" doc:"Only say what would change. There is no token then."`
}

// AdminTenantChange gives a tenant other settings.
type AdminTenantChange struct {
	Providers *[]string  `json:"providers,omitempty" maxItems:"1000" doc:"The labels of those that it may use from now on; an empty list for all. Unless given they stay."`
	Quota     JSONObject `json:"quota,omitempty" doc:"Quotas by the names of the configuration. Those that are not named stay; null removes its own, so that the one for all tenants holds."`
	DryRun    bool       `json:"dry_run,omitempty" doc:"Only say what would change."`
}

// AdminTenantChanged is the answer to a change of a tenant that is in force.
type AdminTenantChanged struct {
	_       struct{}     `additionalProperties:"true"`
	Message string       `json:"message"`
	Data    *AdminTenant `json:"data,omitempty" doc:"The tenant as it is now; absent if it was removed."`
	Reload  AdminReload  `json:"reload"`

	Difference *string `json:"difference,omitempty" doc:"Of a dry run: as in a change of a provider."`
}

// AdminNewToken is the answer to a change that made a token.
type AdminNewToken struct {
	_       struct{}    `additionalProperties:"true"`
	Message string      `json:"message"`
	Token   string      `json:"token" doc:"The token, for the client. It is shown this once: the configuration has only its sum. Empty in an answer that is given again for its Idempotency-Key."`
	TokenID string      `json:"token_id"`
	Data    AdminTenant `json:"data" doc:"The tenant as it is now; without a name for one that a dry run would add."`
	Reload  AdminReload `json:"reload"`

	Difference *string `json:"difference,omitempty" doc:"Of a dry run: as in a change of a provider."`
}

// AdminInstanceList holds live instances of all tenants, in the order of their IDs.
type AdminInstanceList struct {
	_    struct{}        `additionalProperties:"true"`
	Data []AdminInstance `json:"data" nullable:"false"`
	Next string          `json:"next,omitempty" doc:"If there are more: what to give as after for the next page."`
	// Silent are the brokers that have not answered.
	Silent []string `json:"silent,omitempty" doc:"Where there are several brokers: those that did not answer in time, whose part is missing."`
}

// AdminInstanceAnswer is one instance.
type AdminInstanceAnswer struct {
	_    struct{}      `additionalProperties:"true"`
	Data AdminInstance `json:"data"`
}

// AdminInstance is an instance as administrators see it.
type AdminInstance struct {
	Tenant string `json:"tenant" doc:"Whose it is; also one that is no tenant any more." example:"acme"`
	Broker string `json:"broker,omitempty" doc:"The ID of the broker that has it, where there are several."`
	Instance
}

// Admin is what administrators may ask. A change is refused, if the configuration is
// another one by now than With("If-Match", etag) says.
type Admin struct{ client *Client }

// Admin returns the calls for administrators, whose token the client must have.
func (c *Client) Admin() Admin { return Admin{c} }

// adminPath is a path of which the parts are names, and escaped.
func adminPath(parts ...string) string {
	path := "/api/admin/sandbox"
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// Providers lists the providers, and the plugins that no block runs.
func (a Admin) Providers(ctx context.Context) (AdminProviderList, error) {
	return ask[AdminProviderList](ctx, a.client, Request{Method: get, Path: adminPath("providers")})
}

// Provider looks at a provider.
func (a Admin) Provider(ctx context.Context, label string) (AdminProviderAnswer, error) {
	return ask[AdminProviderAnswer](ctx, a.client, Request{Method: get, Path: adminPath("providers", label)})
}

// Instances lists a page of the instances of all tenants. The query may have tenant, session_id,
// provider, state, text, limit and after.
func (a Admin) Instances(ctx context.Context, query url.Values) (AdminInstanceList, error) {
	return ask[AdminInstanceList](ctx, a.client, Request{Method: get, Path: adminPath("instances"), Query: query})
}

// Instance looks at an instance of any tenant.
func (a Admin) Instance(ctx context.Context, id string) (AdminInstanceAnswer, error) {
	return ask[AdminInstanceAnswer](ctx, a.client, Request{Method: get, Path: adminPath("instances", id)})
}

// KillInstance destroys an instance of any tenant.
func (a Admin) KillInstance(ctx context.Context, id string) error {
	return a.client.tell(ctx, http.MethodDelete, adminPath("instances", id), nil)
}

// Config returns the configuration in force.
func (a Admin) Config(ctx context.Context) (AdminConfig, error) {
	return ask[AdminConfig](ctx, a.client, Request{Method: get, Path: adminPath("config")})
}

// SetConfig gives a provider other settings.
func (a Admin) SetConfig(ctx context.Context, req AdminConfigRequest) (AdminChanged, error) {
	return ask[AdminChanged](ctx, a.client, Request{Method: post, Path: adminPath("config"), Body: req})
}

// Test says whether a provider works with some settings.
func (a Admin) Test(ctx context.Context, req AdminTestRequest) (AdminTest, error) {
	return ask[AdminTest](ctx, a.client, Request{Method: post, Path: adminPath("test"), Body: req})
}

// SetActive chooses the active provider.
func (a Admin) SetActive(ctx context.Context, req AdminActiveRequest) (AdminChanged, error) {
	return ask[AdminChanged](ctx, a.client, Request{Method: http.MethodPut, Path: adminPath("active"), Body: req})
}

// Generations lists the last attempts to change the configuration.
func (a Admin) Generations(ctx context.Context) (AdminGenerations, error) {
	return ask[AdminGenerations](ctx, a.client, Request{Method: get, Path: adminPath("generations")})
}

// Reload has the files of the configuration read again.
func (a Admin) Reload(ctx context.Context, req AdminReloadRequest) (AdminReloaded, error) {
	return ask[AdminReloaded](ctx, a.client, Request{Method: post, Path: adminPath("reload"), Body: req})
}

// Drain says whether the broker drains, and what it still has.
func (a Admin) Drain(ctx context.Context) (AdminDrainAnswer, error) {
	return ask[AdminDrainAnswer](ctx, a.client, Request{Method: get, Path: adminPath("drain")})
}

// SetDrain takes the broker that answers out, or back.
func (a Admin) SetDrain(ctx context.Context, req AdminDrainRequest) (AdminDrainAnswer, error) {
	return ask[AdminDrainAnswer](ctx, a.client, Request{Method: http.MethodPut, Path: adminPath("drain"), Body: req})
}

// Status says how the broker is.
func (a Admin) Status(ctx context.Context) (AdminStatusAnswer, error) {
	return ask[AdminStatusAnswer](ctx, a.client, Request{Method: get, Path: adminPath("status")})
}

// Tenants lists the tenants.
func (a Admin) Tenants(ctx context.Context) (AdminTenantList, error) {
	return ask[AdminTenantList](ctx, a.client, Request{Method: get, Path: adminPath("tenants")})
}

// Tenant looks at a tenant.
func (a Admin) Tenant(ctx context.Context, name string) (AdminTenantAnswer, error) {
	return ask[AdminTenantAnswer](ctx, a.client, Request{Method: get, Path: adminPath("tenants", name)})
}

// AddTenant adds a tenant with a token.
func (a Admin) AddTenant(ctx context.Context, req AdminTenantRequest) (AdminNewToken, error) {
	return ask[AdminNewToken](ctx, a.client, Request{Method: post, Path: adminPath("tenants"), Body: req})
}

// ChangeTenant changes what a tenant may use.
func (a Admin) ChangeTenant(ctx context.Context, name string, req AdminTenantChange) (AdminTenantChanged, error) {
	return ask[AdminTenantChanged](ctx, a.client, Request{Method: http.MethodPatch, Path: adminPath("tenants", name), Body: req})
}

// RemoveTenant lets a tenant in no more.
func (a Admin) RemoveTenant(ctx context.Context, name string) (AdminTenantChanged, error) {
	return ask[AdminTenantChanged](ctx, a.client, Request{Method: http.MethodDelete, Path: adminPath("tenants", name)})
}

// AddToken gives a tenant a further token.
func (a Admin) AddToken(ctx context.Context, name string) (AdminNewToken, error) {
	return ask[AdminNewToken](ctx, a.client, Request{Method: post, Path: adminPath("tenants", name, "tokens")})
}

// RotateToken replaces a token by a new one.
func (a Admin) RotateToken(ctx context.Context, name, id string) (AdminNewToken, error) {
	return ask[AdminNewToken](ctx, a.client, Request{Method: post, Path: adminPath("tenants", name, "tokens", id, "rotate")})
}

// RevokeToken revokes a token.
func (a Admin) RevokeToken(ctx context.Context, name, id string) (AdminTenantChanged, error) {
	return ask[AdminTenantChanged](ctx, a.client, Request{Method: http.MethodDelete, Path: adminPath("tenants", name, "tokens", id)})
}
