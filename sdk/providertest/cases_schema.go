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

// "Label, Description and Placeholder are for people." (Field)
func describedSettings(c *scene) {
	for _, f := range c.described().Schema {
		c.check(f.Description != "", "the setting %s has no description", f.Name)
	}
}

var soundsSecret = regexp.MustCompile(`(^|_)(password|passwd|passphrase|secret|token|api_key|access_key|secret_key|private_key|credentials?)$`)

// "Secret settings are never shown, logged or echoed." (Field)
func secretsAreDeclared(c *scene) {
	for _, f := range c.described().Schema {
		text := f.Type == sdk.TypeString || f.Type == sdk.TypeList || f.Type == sdk.TypeMap
		c.check(f.Secret || !text || !soundsSecret.MatchString(f.Name), "the setting %s sounds secret and is not declared so", f.Name)
	}
}

// What is published in forms and documentation is no secret. (Field)
func secretsAreNotPublished(c *scene) {
	for _, f := range c.described().Schema {
		c.check(!f.Secret || f.Default == nil && len(f.Options) == 0, "the secret %s has a default or options, which everybody can read", f.Name)
	}
}
