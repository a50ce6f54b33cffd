package api

import "time"

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
