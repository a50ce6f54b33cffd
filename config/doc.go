// Package config reads sandbox.hcl into one immutable Config.
//
// Load reads a file, Parse reads bytes. Both report every mistake they find as
// Diagnostics, each with its place, an excerpt of the source and what to do.
// Start with config.go for what a file may hold, as Go types, and with
// schema.go for the names, types and ranges of the broker's own settings.
//
// The settings of a provider block are read by Provider.Settings once the
// running plugin has described its schema. Both kinds of settings obey the same
// rules, those of sdk.Schema: no conversion between strings and numbers, no
// unknown names.
//
// # Secrets
//
// What env() and file() return, and what a schema calls secret, appears in no
// diagnostic. As long as the schema is unknown every setting of a provider
// counts as secret; source.go says how an excerpt is cut.
//
// Not here: starting plugins (broker/pluginhost), watching and editing the file.
package config
