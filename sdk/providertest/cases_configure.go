package providertest

import (
	"regexp"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func configureCases() []Case {
	const group = "configure"
	return []Case{
		{Group: group, Name: "the settings of this run are accepted", fresh: true, run: acceptsItsSettings},
		{Group: group, Name: "a missing setting is refused by name", fresh: true, run: refusesMissing},
		{Group: group, Name: "a value that is not among the options is refused", fresh: true, run: refusing(outOfOptions)},
		{Group: group, Name: "a value out of bounds is refused", fresh: true, run: refusing(outOfBounds)},
		{Group: group, Name: "a text that does not match its pattern is refused", fresh: true, run: refusing(offPattern)},
		{Group: group, Name: "a value of a wrong type is refused", fresh: true, run: refusing(wrongType)},
		{Group: group, Name: "an unknown setting is refused", fresh: true, run: refusesUnknown},
		{Group: group, Name: "a refusal does not repeat a secret", fresh: true, run: refusesWithoutSecrets},
		{Group: group, Name: "what it shows and logs has no secrets", fresh: true, run: showsNoSecrets},
	}
}

// "Configure validates the settings beyond the schema and connects."
// (Provider.Configure)
func acceptsItsSettings(c *scene) {
	s := c.launched()
	settings, err := c.suite.resolve(s.Describe().Schema)
	c.must(err, "resolve")
	problems, err := s.Validate(c.ctx, settings)
	c.must(err, "Validate before Configure")
	c.check(len(problems) == 0, "Validate objects to the settings of this run: %v", problems)
	c.must(s.configure(c.ctx, settings), "with the settings of this run")
}

// "Required settings have no default." (Field) The broker checks that they are
// there; a plugin that serves with the SDK does too, and so must every other,
// for it may be run by a broker that read another version's schema.
func refusesMissing(c *scene) {
	c.eachRefused(func(f sdk.Field) []badValue {
		if !f.Required && f.CheckCount(0) == nil {
			return nil
		}
		return []badValue{{nil, "is missing"}}
	})
}

// refusing makes a case of a kind of bad values: "Return CodeInvalidConfig with
// Field set when a setting is at fault." (Provider.Configure)
func refusing(bad func(sdk.Field) []badValue) func(*scene) {
	return func(c *scene) { c.eachRefused(bad) }
}

// eachRefused configures a process with one bad value after the other: a refusal
// leaves it as it was.
func (c *scene) eachRefused(bad func(sdk.Field) []badValue) {
	s := c.launched()
	schema := s.Describe().Schema
	settings, err := c.suite.resolve(schema)
	c.must(err, "resolve")
	tried := 0
	for _, at := range placesIn(schema, settings) {
		for _, b := range bad(at.field) {
			value, ok := at.fill(b.value)
			if !ok {
				continue
			}
			tried++
			err := s.configure(c.ctx, at.put(value))
			c.refusedField(err, "Configure with a value of "+at.path+" that "+b.why, sdk.CodeInvalidConfig, at.path)
		}
	}
	if tried == 0 {
		c.skip("no setting is declared so")
	}
}

// A setting that the schema does not have is a mistake of the operator.
func refusesUnknown(c *scene) {
	s := c.launched()
	settings, err := c.suite.resolve(s.Describe().Schema)
	c.must(err, "resolve")
	const name = "no_such_setting"
	c.refusedField(s.configure(c.ctx, with(settings, name, "x")), "Configure with an unknown setting", sdk.CodeInvalidConfig, name)
}

// "Secret settings are never shown, logged or echoed." (Field) "Message is for
// the caller: no secrets, no paths of the host." (Error)
func refusesWithoutSecrets(c *scene) {
	schema := c.described().Schema
	tried := 0
	settings, err := c.suite.resolve(schema)
	c.must(err, "resolve")
	for _, at := range placesIn(schema, settings) {
		f := at.field
		if !f.Secret {
			continue
		}
		tried++
		s := c.launched()
		canary := "canary-" + randomWord()
		var value any = canary
		switch f.Type {
		case sdk.TypeList:
			value = []string{canary}
		case sdk.TypeMap:
			value = map[string]string{"canary": canary}
		}
		if err := s.configure(c.ctx, at.put(value)); err != nil {
			c.check(!strings.Contains(err.Error(), canary), "the error of Configure repeats the secret %s", at.path)
		}
		if s.plugin.Log != nil {
			c.check(!strings.Contains(s.plugin.Log(), canary), "the log repeats the secret %s", at.path)
		}
	}
	if tried == 0 {
		c.skip("no setting is secret")
	}
}

// The same for what it says while all is well.
func showsNoSecrets(c *scene) {
	secrets := secretsOf(c.described().Schema, c.suite.given)
	if len(secrets) == 0 {
		c.skip("the settings of this run have no secret")
	}
	s := c.newSession(newBrokerID(), newBrokerID())
	health, err := s.Health(c.ctx)
	c.must(err, "health")
	shown := []string{health.Reason}
	for name, value := range health.Details {
		shown = append(shown, name, value)
	}
	for _, m := range health.Metrics {
		shown = append(shown, m.Help)
		for _, value := range m.Labels {
			shown = append(shown, value)
		}
	}
	made := s.create(s.createRequest(s.Describe().Languages[0]))
	shown = append(shown, made.ID)
	for name, value := range made.Metadata {
		shown = append(shown, name, value)
	}
	for name, value := range made.Labels {
		shown = append(shown, name, value)
	}
	if s.plugin.Log != nil {
		shown = append(shown, s.plugin.Log())
	}
	for _, text := range shown {
		for _, secret := range secrets {
			c.check(!strings.Contains(text, secret), "a secret of the settings stands in what the provider shows or logs: %s", strings.ReplaceAll(text, secret, "(hidden)"))
		}
	}
}

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
