package providertest

import (
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func descriptionCases() []Case {
	const group = "description"
	return []Case{
		{Group: group, Name: "it starts and describes itself", fresh: true, run: startsAndDescribes},
		{Group: group, Name: "it says its version and what it is", fresh: true, run: namesItself},
		{Group: group, Name: "every process describes itself alike", fresh: true, run: describesAlike},
		{Group: group, Name: "it offers languages by their canonical names", fresh: true, run: canonicalLanguages},
		{Group: group, Name: "it offers templates, each once", fresh: true, run: distinctTemplates},
		{Group: group, Name: "templates list languages that it offers", fresh: true, run: templatesOfItsLanguages},
		{Group: group, Name: "every language has a template", fresh: true, run: everyLanguageHasATemplate},
		{Group: group, Name: "it claims capabilities that exist, each once", fresh: true, run: knownCapabilities},
	}
}

// described starts a process of its own and returns what it says of itself.
func (c *scene) described() sdk.Description { return c.launched().Describe() }

// "It is called before Configure, also for `check` and for docs." (Provider.Describe)
// The client that asks refuses a description that breaks the rules: names and sizes,
// and a schema whose defaults, options or bounds contradict each other.
func startsAndDescribes(c *scene) {
	d := c.described()
	c.check(d.Name != "", "its name is empty")
}

// "Version is the plugin's version, for people. Summary is one sentence for
// people." (Description)
func namesItself(c *scene) {
	d := c.described()
	c.check(strings.TrimSpace(d.Version) != "", "its version is empty")
	c.check(strings.TrimSpace(d.Summary) != "", "its summary is empty")
	c.check(!strings.Contains(strings.TrimSpace(d.Summary), "\n"), "its summary has several lines: %q", d.Summary)
}

// "Describe says what this provider is", which is the same for `check`, for the
// docs and for the process that serves.
func describesAlike(c *scene) {
	equal(c, c.described(), c.described(), "the description of a second process")
}

// "Language is the canonical name of a programming language." (Language)
func canonicalLanguages(c *scene) {
	languages := c.described().Languages
	c.check(len(languages) > 0, "it offers no language, so nothing can be executed")
	for i, l := range languages {
		equal(c, l, sdk.ParseLanguage(string(l)), "the language %q", l)
		c.check(!slices.Contains(languages[:i], l), "the language %s stands there twice", l)
	}
}

// "Templates that Create accepts; the first is the default." (Description)
func distinctTemplates(c *scene) {
	templates := c.described().Templates
	c.check(len(templates) > 0, "it offers no template, so nothing can be created")
	seen := map[string]bool{}
	for _, t := range templates {
		c.check(!seen[t.Name], "the template %s stands there twice", t.Name)
		seen[t.Name] = true
	}
}

// "Languages that this template serves best", of those that Execute accepts.
// (Template)
func templatesOfItsLanguages(c *scene) {
	d := c.described()
	for _, t := range d.Templates {
		for _, l := range t.Languages {
			c.check(slices.Contains(d.Languages, l), "the template %s lists %s, which the provider does not offer", t.Name, l)
		}
	}
}

// "an execution that names no template gets the first one listing its language."
// (Template)
func everyLanguageHasATemplate(c *scene) {
	d := c.described()
	for _, l := range d.Languages {
		c.check(d.TemplateFor(l) != "", "no template lists %s, so executions in it find none", l)
	}
}

// "Capability names an optional ability of a provider." (Capability)
func knownCapabilities(c *scene) {
	capabilities := c.described().Capabilities
	for i, capability := range capabilities {
		c.check(slices.Contains(everyCapability(), capability), "%q is not a capability", capability)
		c.check(!slices.Contains(capabilities[:i], capability), "the capability %s stands there twice", capability)
	}
}
