package providertest

import (
	"regexp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func schemaCases() []Case {
	const group = "schema"
	return []Case{
		{Group: group, Name: "every setting is described", fresh: true, run: describedSettings},
		{Group: group, Name: "settings that sound secret are secret", fresh: true, run: secretsAreDeclared},
		{Group: group, Name: "secrets have no default and no options", fresh: true, run: secretsAreNotPublished},
	}
}

// schema returns the settings that a process describes, those of blocks too and named by
// their paths, and skips where there are none of the kind.
func (c *scene) schema(of string, kind func(sdk.Field) bool) sdk.Schema {
	var fields sdk.Schema
	for path, f := range c.described().Schema.Paths() {
		if kind(f) {
			f.Name = path
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 {
		c.skip("it has no %s", of)
	}
	return fields
}

// "Label, Description and Placeholder are for people." (Field)
func describedSettings(c *scene) {
	for _, f := range c.schema("settings", func(sdk.Field) bool { return true }) {
		c.check(f.Description != "", "the setting %s has no description", f.Name)
	}
}

var soundsSecret = regexp.MustCompile(`(^|[_.])(password|passwd|passphrase|secret|token|api_key|access_key|secret_key|private_key|credentials?)$`)

// "Secret settings are never shown, logged or echoed." (Field)
func secretsAreDeclared(c *scene) {
	for _, f := range c.schema("setting that sounds secret", func(f sdk.Field) bool {
		text := f.Type == sdk.TypeString || f.Type == sdk.TypeList || f.Type == sdk.TypeMap
		return text && soundsSecret.MatchString(f.Name)
	}) {
		c.check(f.Secret, "the setting %s sounds secret and is not declared so", f.Name)
	}
}

// What is published in forms and documentation is no secret. (Field)
func secretsAreNotPublished(c *scene) {
	for _, f := range c.schema("secret", func(f sdk.Field) bool { return f.Secret }) {
		c.check(f.Default == nil && len(f.Options) == 0, "the secret %s has a default or options, which everybody can read", f.Name)
	}
}
