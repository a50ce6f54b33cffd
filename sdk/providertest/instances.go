package providertest

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// templateFor is the template that the broker would choose.
func (s *session) templateFor(l sdk.Language) string {
	d := s.Describe()
	if name := d.TemplateFor(l); name != "" {
		return name
	}
	if len(d.Templates) > 0 {
		return d.Templates[0].Name
	}
	return ""
}

// labels are a set of those that the broker gives to an instance.
func newLabels() map[string]string {
	return map[string]string{
		sdk.LabelTenant: "providertest", sdk.LabelSession: "s-" + randomWord(), sdk.LabelInstance: randomWord(),
	}
}

// randomWord has the form of the broker's names for instances.
func randomWord() string { return strings.ToLower(rand.Text())[:20] }

// createRequest asks for an instance as the broker does.
func (s *session) createRequest(l sdk.Language) sdk.CreateRequest {
	return sdk.CreateRequest{Template: s.templateFor(l), Labels: newLabels(), IdempotencyKey: randomWord()}
}

// createWith makes an instance and destroys it at the end of the case.
func (c *scene) createWith(req sdk.CreateRequest) sdk.Instance { return c.createOn(c.session, req) }

func (c *scene) createOn(s *session, req sdk.CreateRequest) sdk.Instance {
	made, err := c.triedCreate(s, req)
	c.must(err, "create an instance of the template %q", req.Template)
	return made
}

// triedCreate is createOn, and returns the error too.
func (c *scene) triedCreate(s *session, req sdk.CreateRequest) (sdk.Instance, error) {
	var made sdk.Instance
	err := c.call("Create", func(ctx context.Context) (err error) {
		made, err = s.Create(ctx, req)
		return err
	})
	if err == nil {
		c.destroyLater(s, made.ID)
	}
	return made, err
}

// destroyLater destroys an instance at the end of the case.
func (c *scene) destroyLater(s *session, id string) {
	c.later(func() {
		if s.stopped || c.destroyed[id] {
			return
		}
		c.destroyed[id] = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.suite.within(callTimeout))
		defer cancel()
		if err := s.Destroy(ctx, id); err != nil {
			c.note("destroy the instance %s at the end: %v", id, err)
		}
	})
}

// instance makes an instance for the language of the case.
func (c *scene) instance() string {
	c.someLanguage()
	return c.createWith(c.createRequest(c.language)).ID
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

// listed is List, by the instances' IDs.
func (c *scene) listed(s *session) map[string]sdk.Instance {
	var list []sdk.Instance
	err := c.call("List", func(ctx context.Context) (err error) {
		list, err = s.List(ctx)
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
func (c *scene) destroy(id string) { c.destroyOn(c.session, id) }

func (c *scene) destroyOn(s *session, id string) {
	err := c.call("Destroy", func(ctx context.Context) error { return s.Destroy(ctx, id) })
	c.must(err, "destroy the instance %s", id)
	c.destroyed[id] = true
}
