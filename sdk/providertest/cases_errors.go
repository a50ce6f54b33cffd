package providertest

import (
	"context"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func errorCases() []Case {
	const group = "errors"
	return []Case{
		{Group: group, Name: "an unknown instance is not found", run: unknownInstance},
		{Group: group, Name: "names that no instance can have are not found", run: impossibleInstances},
		{Group: group, Name: "the beginning of an ID is not the instance", run: prefixIsNotFound},
		{Group: group, Name: "a language that it does not offer is refused", run: refusesUnknownLanguage},
		{Group: group, Name: "an unknown context is not found", run: unknownContext},
		{Group: group, Name: "errors have codes", run: errorsHaveCodes},
		{Group: group, Name: "errors name no path of the host", run: errorsNameNoPath},
	}
}

// "Return CodeNotFound for an unknown instance, with NoEffect." (Provider.Execute)
func unknownInstance(c *scene) {
	c.someLanguage()
	got := c.tried(c.request("unknown"+randomWord(), c.samples.Hello))
	e := c.refusal(got.err, "Execute in an unknown instance", []sdk.Code{sdk.CodeNotFound})
	c.check(e.NoEffect, "Execute in an unknown instance gave %v without NoEffect; a session whose instance is gone gets no other", e)
}

// The same. The broker asks for IDs that a provider gave; these must not lead
// anywhere all the same.
func impossibleInstances(c *scene) {
	c.someLanguage()
	for _, id := range []string{"", ".", "..", "../..", "/", "a/b", "a b", "-rf", "*", strings.Repeat("x", 300), "x\ny"} {
		got := c.tried(c.request(id, c.samples.Hello))
		c.refused(got.err, "Execute in the instance "+shown(id), sdk.CodeNotFound, sdk.CodeInvalidRequest)
	}
}

// "some back ends resolve unique prefixes" (Instance.ID): that must not show.
func prefixIsNotFound(c *scene) {
	id := c.instance()
	for _, other := range []string{id[:len(id)-1], id + "0"} {
		got := c.tried(c.request(other, c.samples.Hello))
		c.refused(got.err, "Execute in the instance "+other+" beside "+id, sdk.CodeNotFound)
	}
	c.must(c.call("Destroy", func(ctx context.Context) error { return c.Destroy(ctx, id[:len(id)-1]) }), "destroy the beginning of an ID")
	c.prints(id, c.samples.Hello, "hello\n")
}

// "Languages that Execute accepts." (Description)
func refusesUnknownLanguage(c *scene) {
	req := c.request(c.instance(), c.samples.Hello)
	req.Language = "no-such-language"
	c.refused(c.tried(req).err, "Execute in a language that it does not offer", sdk.CodeInvalidRequest, sdk.CodeNotSupported)
}

// "Return CodeNotFound … for an unknown context." (Provider.Execute, Contexts)
func unknownContext(c *scene) {
	req := c.request(c.instance(), c.code(c.samples.Hello))
	req.ContextID = "unknown" + randomWord()
	codes := []sdk.Code{sdk.CodeNotFound}
	if !c.claims(sdk.CapabilityContexts) {
		codes = append(codes, sdk.CodeNotSupported, sdk.CodeInvalidRequest)
	}
	c.refused(c.tried(req).err, "Execute in an unknown context", codes...)
}

// provoked are errors of all kinds.
func (c *scene) provoked() map[string]error {
	c.someLanguage()
	unknown := "unknown" + randomWord()
	strange := c.createRequest("")
	strange.Template = "no-such-template"
	return map[string]error{
		"Execute in an unknown instance": c.tried(c.request(unknown, c.samples.Hello)).err,
		"Create with an unknown template": c.call("Create", func(ctx context.Context) error {
			_, err := c.Create(ctx, strange)
			return err
		}),
	}
}

// "A method that fails should return an *Error: its code reaches the agent … Any
// other error becomes SB000." (Provider)
func errorsHaveCodes(c *scene) {
	for doing, err := range c.provoked() {
		c.check(err != nil, "%s succeeded", doing)
		c.check(sdk.CodeOf(err) != sdk.CodeInternal, "%s gave an error without a code: %v", doing, err)
	}
}

// "Message is for the caller: no secrets, no paths of the host." (Error)
func errorsNameNoPath(c *scene) {
	for doing, err := range c.provoked() {
		c.check(err != nil, "%s succeeded", doing)
		c.check(!strings.Contains(err.Error(), c.stateDir), "%s gave an error that names the state directory: %v", doing, err)
	}
}
