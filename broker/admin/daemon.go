package admin

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Daemon is the broker as a Configurator needs it. Its methods may be called
// concurrently.
type Daemon interface {
	// File is the main file of the configuration, as it was named at the start; ""
	// for a broker whose configuration stays as it is.
	File() string
	// InForce is what requests go by at this moment.
	InForce() Generation
	// Apply brings a draft in force as a whole or not at all: with an error, which is
	// config.Diagnostics where the configuration is at fault, everything is as it was.
	// It is saved when it is known to work and before it is in force; errors of that
	// come back as they are. begun says why it is done. What became of it is
	// remembered. One that starts no provider waits for none.
	Apply(ctx context.Context, begun Reload, draft Draft) (Reload, error)
	// Reread does the same with the files as they are.
	Reread(ctx context.Context) (Reload, error)
	// DryRun says what Reread would do, and does not.
	DryRun(ctx context.Context) (Reload, error)
	// Preview says what Apply would do with a configuration, and does not. begun is as
	// there.
	Preview(ctx context.Context, begun Reload, cfg *config.Config) (Reload, error)
	// Texts are the files of a generation; none if they are not kept.
	Texts(generation int) []FileText
	// Describe starts the plugin of a block for a moment to ask it what it is.
	Describe(ctx context.Context, cfg *config.Config, block *config.Provider) (sdk.Description, error)
	// Try starts a provider beside those that run, configures it, asks how it is and
	// stops it. It is given no work. The error is config.Diagnostics for settings
	// that do not fit its schema, or the end of ctx.
	Try(ctx context.Context, cfg *config.Config, block *config.Provider) (Trial, error)
	// Reloads are those that are remembered, the newest first.
	Reloads() []Reload
	// Status of the whole.
	Status() Status
}

// Draft is a change of the configuration's files that is not written yet.
type Draft interface {
	// Config is what comes out, without mistakes.
	Config() *config.Config
	// Revisions are those of the files that it changes, and of the files as they are
	// now; "" if they cannot be read.
	Revisions() (from, now string)
	// Quick reports whether Renew starts no plugin.
	Quick() bool
	// Renew makes the same change to the files as they are now.
	Renew() error
	// Save writes the files. It is SB014 if they are not those that it changes.
	Save() error
}

// Generation is one accepted version of the configuration.
type Generation struct {
	// Number counts from 1.
	Number   int
	Accepted time.Time
	Config   *config.Config
	// Providers in the order of the configuration.
	Providers []Configured
}

// Configured is a provider as it was configured.
type Configured struct {
	Label    string
	Schema   sdk.Schema
	Settings sdk.Settings
}

// provider finds one by its label.
func (g Generation) provider(label string) (Configured, bool) {
	for _, p := range g.Providers {
		if p.Label == label {
			return p, true
		}
	}
	return Configured{}, false
}

// Trial is what became of an attempt to connect.
type Trial struct {
	Success bool
	// Message says in a sentence why not, or that it works. It is free of the
	// secrets of the settings.
	Message string
	// Code and Field, a setting, are of the error; empty if there was none, or none
	// that names them.
	Code  sdk.Code
	Field string
	// Latency is how long the provider took to accept its settings and to answer
	// that it is well. Its process had started before.
	Latency time.Duration
	// Details are those of its health.
	Details map[string]string
}

// Status of a broker.
type Status struct {
	Version string
	Started time.Time
	// Instances by their state, one of instance.States.
	Instances map[string]int
}
