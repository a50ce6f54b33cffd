// Package config reads sandbox.hcl and the files that it includes into one
// immutable Config.
//
// Load reads files, Parse reads bytes. Both report every mistake they find as
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
// What env(), file() and sealed() return, and what a schema calls secret, appears
// in no diagnostic. As long as the schema is unknown every setting of a provider
// counts as secret; source.go says how an excerpt is cut.
//
// Not here: the encryption behind sealed() (config/seal), editing the files
// (config/edit), pages and schemas for people and programs (config/reference),
// starting plugins (broker/pluginhost), watching the files (config/watch).
package config
