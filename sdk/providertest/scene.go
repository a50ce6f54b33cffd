package providertest

import (
	"context"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// scene is what a case plays in: a process of the provider, and a language.
//
// What a case does in one instance are methods of [instance], and of what has words of
// its own there: files, commands, a codeContext, an execution and its outcome.
type scene struct {
	*trial
	*session // the shared process; nil in fresh cases
	language sdk.Language
	samples  Samples
}

// newSession starts a further process and stops it at the end of the case. The
// same state name and broker ID are those of a provider that is started again.
func (c *scene) newSession(brokerID, state string) *scene {
	s, err := c.suite.start(c.ctx, brokerID, state)
	c.must(err, "start another process of the provider")
	return c.with(s)
}

// launched starts a process that is not configured yet.
func (c *scene) launched() *scene {
	s, err := c.suite.launch(c.ctx, newBrokerID(), newBrokerID())
	c.must(err, "start the provider")
	return c.with(s)
}

// with is the same case with another process, which is stopped at its end.
func (c *scene) with(s *session) *scene {
	c.later(func() { s.stop(c.ctx) })
	return &scene{trial: c.trial, session: s, language: c.language, samples: c.samples}
}

// chooseLanguage settles on a language for a case that has none: the first of the
// provider's that there is code for.
func (c *scene) chooseLanguage() {
	offered := c.suite.description().Languages
	for _, l := range c.suite.languages() {
		if c.language == "" && slices.Contains(offered, l) {
			c.language = l
		}
	}
	c.samples = c.suite.samples[c.language]
}

// someLanguage skips a case that runs code where there is none to run.
func (c *scene) someLanguage() {
	if c.suite.described == nil { // no process has started so far
		c.launched().stop(c.ctx)
		c.chooseLanguage()
	}
	if c.language == "" {
		c.skip("there is no code for any of the provider's languages: %v", c.suite.description().Languages)
	}
}

// code is the sample of the case's language; without one the case is skipped.
func (c *scene) code(sample string) string {
	if sample == "" {
		c.skip("there is no code for this in %s", c.language)
	}
	return sample
}

// claims reports whether the provider has a capability.
func (c *scene) claims(capability sdk.Capability) bool {
	return slices.Contains(c.suite.description().Capabilities, capability)
}

// create makes an instance and destroys it at the end of the case.
func (c *scene) create(req sdk.CreateRequest) instance {
	made, err := c.tryCreate(req)
	c.must(err, "create an instance of the template %q", req.Template)
	return made
}

// tryCreate is create, and returns the error too.
func (c *scene) tryCreate(req sdk.CreateRequest) (instance, error) {
	var made sdk.Instance
	err := c.call("Create", func(ctx context.Context) (err error) {
		made, err = c.Create(ctx, req)
		return err
	})
	if err == nil {
		c.destroyLater(made.ID)
	}
	return instance{c, made}, err
}

// instance makes an instance for the language of the case.
func (c *scene) instance() instance {
	c.someLanguage()
	return c.create(c.createRequest(c.language))
}

// withID is an instance of which the ID alone is known, if there is one at all.
func (c *scene) withID(id string) instance { return instance{c, sdk.Instance{ID: id}} }

// destroyLater destroys an instance at the end of the case.
func (c *scene) destroyLater(id string) {
	c.later(func() {
		if c.stopped || c.destroyed[id] {
			return
		}
		c.destroyed[id] = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.suite.within(callTimeout))
		defer cancel()
		if err := c.Destroy(ctx, id); err != nil {
			c.note("destroy the instance %s at the end: %v", id, err)
		}
	})
}

// listed is List, by the instances' IDs.
func (c *scene) listed() map[string]sdk.Instance {
	var list []sdk.Instance
	err := c.call("List", func(ctx context.Context) (err error) {
		list, err = c.List(ctx)
		return err
	})
	c.must(err, "list the instances")
	byID := map[string]sdk.Instance{}
	for _, i := range list {
		if _, twice := byID[i.ID]; twice {
			c.fail("List has the instance %s twice", i.ID)
		}
		byID[i.ID] = i
	}
	return byID
}

// destroy ends an instance within the case.
func (c *scene) destroy(id string) {
	err := c.call("Destroy", func(ctx context.Context) error { return c.Destroy(ctx, id) })
	c.must(err, "destroy the instance %s", id)
	c.destroyed[id] = true
}
