// Package reference writes down what a configuration may hold: for people as
// Markdown, which is docs/configuration.md, and for programs as JSON Schema.
//
// Both are made from config.Blocks and from what plugins say of themselves. Not
// here: the rules themselves (package config, sdk.Schema).
package reference
