package api

import (
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// AdminConfig is the configuration in force.
type AdminConfig struct {
	_    struct{}        `additionalProperties:"true"`
	Data AdminSettings   `json:"data"`
	Meta AdminConfigMeta `json:"meta"`
}

func (a AdminConfig) entityTag() string { return quotedTag(a.Meta.Revision) }

// AdminSettings has "active", and the settings of each provider under its label.
type AdminSettings map[string]any

// Schema implements huma.SchemaProvider.
func (AdminSettings) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type:        huma.TypeObject,
		Description: "The active provider, and the settings of each provider under its label. Secrets, and whatever comes from env(), file() or sealed(), show as **** and their last four characters, or none if they are short. A duration is text, such as 30s.",
		Properties:  map[string]*huma.Schema{"active": {Type: huma.TypeString, Description: "The label of the provider that serves requests naming none."}},
		Required:    []string{"active"},

		AdditionalProperties: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true},
	}
}

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
}

// AdminChanged is the answer to a change that is in force.
type AdminChanged struct {
	_       struct{}    `additionalProperties:"true"`
	Message string      `json:"message"`
	Data    AdminReload `json:"data"`
	Test    *AdminTest  `json:"test,omitempty" doc:"Present if test_connection was asked for."`
}

func (a AdminChanged) entityTag() string { return quotedTag(a.Data.Revision) }

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

func quotedTag(revision string) string { return `"` + revision + `"` }
