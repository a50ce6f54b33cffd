package providertest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func templateCases() []Case {
	const group = "templates"
	return needing([]Case{
		{Group: group, Name: "instances are made of what was built", run: templateIsBuilt},
		{Group: group, Name: "what is built says what it is", run: templateSaysWhatItIs},
		{Group: group, Name: "what is built is listed", run: templateIsListed},
		{Group: group, Name: "built again of its source it is the same", run: templateIsPinned},
		{Group: group, Name: "what is described otherwise is another image", run: templateIsItsDescription},
		{Group: group, Name: "its variables are below those of the creation", run: templateVariables},
		{Group: group, Name: "what was not built is refused", run: templateUnknown},
		{Group: group, Name: "what was removed is not there any more", run: templateIsRemoved},
		{Group: group, Name: "instances outlive the removal of their template", run: templateOutlived},
		{Group: group, Name: "what cannot be built is refused with its field", run: templateUnusable},
		{Group: group, Name: "a build to which nobody listened can be made again", run: templateUnheard},
	}, sdk.CapabilityTemplates)
}

// templateRequest is the template that the options name, by a name of the case's own.
func (c *scene) templateRequest() sdk.BuildTemplateRequest {
	if c.suite.template == nil {
		c.skip("nobody named a template that can be built here")
	}
	c.language = c.suite.template.Language
	req := c.suite.template.Request
	req.Name = "t" + randomWord()[:10]
	return req
}

// build builds a template, which is removed at the end of the case.
func (c *scene) build(req sdk.BuildTemplateRequest) sdk.BuiltTemplate {
	built, err := c.tryBuild(req, func(sdk.TemplateProgress) error { return nil })
	c.must(err, "build a template")
	c.later(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.suite.within(callTimeout))
		defer cancel()
		if err := c.RemoveTemplate(ctx, built.Image); err != nil {
			c.note("remove the template %s at the end: %v", built.Image, err)
		}
	})
	return built
}

func (c *scene) tryBuild(req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (built sdk.BuiltTemplate, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.suite.within(caseTimeout))
	defer cancel()
	return c.BuildTemplate(ctx, req, progress)
}

// of asks for an instance of what was built.
func createOf(c *scene, built sdk.BuiltTemplate) sdk.CreateRequest {
	req := c.createRequest(c.language)
	req.Template, req.Image = built.Name, built.Image
	return req
}

func listedTemplates(c *scene) []sdk.BuiltTemplate {
	list, err := c.ListTemplates(c.ctx)
	c.must(err, "list the templates")
	return list
}

func has(list []sdk.BuiltTemplate, image string) bool {
	return slices.ContainsFunc(list, func(t sdk.BuiltTemplate) bool { return t.Image == image })
}

// "BuildTemplate builds what the request describes, and returns when instances can be made
// of it." (TemplateBuilder) "Template is one of Description.Templates, or with Image a name
// of the operator's." (CreateRequest)
func templateIsBuilt(c *scene) {
	built := c.build(c.templateRequest())
	in := c.create(createOf(c, built))
	equal(c, in.Template, built.Name, "the template of an instance")
	in.run(c.suite.template.Code).succeeded()
	c.check(c.instance().run(c.suite.template.Code).ExitCode != 0, "an instance without the template has what is in it")
}

// "Name as the request had it." "Languages that its instances can run." (BuiltTemplate)
func templateSaysWhatItIs(c *scene) {
	req := c.templateRequest()
	built := c.build(req)
	equal(c, built.Name, req.Name, "the name of what was built")
	c.check(slices.Contains(built.Languages, c.language), "what was built runs %v, and not %s", built.Languages, c.language)
	for _, l := range built.Languages {
		c.check(slices.Contains(c.Describe().Languages, l), "what was built runs %s, which the provider does not", l)
	}
}

// "ListTemplates returns what was built for this broker and has not been removed."
// (TemplateBuilder)
func templateIsListed(c *scene) {
	built := c.build(c.templateRequest())
	list := listedTemplates(c)
	at := slices.IndexFunc(list, func(t sdk.BuiltTemplate) bool { return t.Image == built.Image })
	if at < 0 {
		c.fail("ListTemplates lacks the template that was just built")
		return
	}
	equal(c, list[at].Name, built.Name, "the name that is listed")
	equal(c, list[at].Source, built.Source, "the source that is listed")
}

// "build of that, whatever they stand for by now" (BuildTemplateRequest.Source) "What is
// built already is returned as it is." (BuildTemplate)
func templateIsPinned(c *scene) {
	req := c.templateRequest()
	first := c.build(req)
	req.Source = first.Source
	second := c.build(req)
	equal(c, second.Source, first.Source, "the source of the second build")
	equal(c, second.Image, first.Image, "the image of the second build")
	count := 0
	for _, t := range listedTemplates(c) {
		if t.Image == first.Image {
			count++
		}
	}
	equal(c, count, 1, "how often it is listed")
}

// "Image names what was built, and all that the request said of it." (BuiltTemplate)
func templateIsItsDescription(c *scene) {
	req := c.templateRequest()
	first := c.build(req)
	req.Source, req.Env = first.Source, map[string]string{"OTHER": "x"}
	second := c.build(req)
	c.check(first.Image != second.Image, "two templates that are described otherwise have the image %s both", first.Image)
}

// "Env is added to the environment of all code in its instances, below what the creation of
// the instance gives." (BuildTemplateRequest)
func templateVariables(c *scene) {
	req := c.templateRequest()
	req.Env = map[string]string{"OF_THE_TEMPLATE": "template", "OF_BOTH": "template"}
	create := createOf(c, c.build(req))
	create.Env = map[string]string{"OF_BOTH": "creation"}
	in := c.create(create)
	if c.language != sdk.Bash {
		c.skip("the suite reads variables of templates in %s only", sdk.Bash)
	}
	got := in.execute(in.request("echo $OF_THE_TEMPLATE $OF_BOTH"))
	equal(c, strings.TrimSpace(got.stdout), "template creation", "the variables")
}

// "One that the provider does not have is refused with CodeInvalidRequest and the field
// "template"." (CreateRequest.Image)
func templateUnknown(c *scene) {
	c.templateRequest()
	req := c.createRequest(c.language)
	req.Template, req.Image = "t", "sha256:"+strings.Repeat("0", 64)
	_, err := c.tryCreate(req)
	c.refusedField(err, "Create of an image that was never built", sdk.CodeInvalidRequest, "template")
}

// "RemoveTemplate says that no instance will be made of an image any more." "To remove what
// does not exist is a success." (TemplateBuilder)
func templateIsRemoved(c *scene) {
	built := c.build(c.templateRequest())
	c.must(c.RemoveTemplate(c.ctx, built.Image), "remove a template")
	c.check(!has(listedTemplates(c), built.Image), "ListTemplates has the template that was removed")
	c.must(c.RemoveTemplate(c.ctx, built.Image), "remove a template again")
	c.must(c.RemoveTemplate(c.ctx, "sha256:"+strings.Repeat("0", 64)), "remove a template that never was")
}

// "What only it needs is freed, at the latest when the last instance of it has ended."
// (RemoveTemplate): not before.
func templateOutlived(c *scene) {
	built := c.build(c.templateRequest())
	in := c.create(createOf(c, built))
	c.must(c.RemoveTemplate(c.ctx, built.Image), "remove a template")
	in.run(c.suite.template.Code).succeeded()
}

// "Return CodeInvalidRequest, with the field, for what cannot be built as it is described."
// (BuildTemplate)
func templateUnusable(c *scene) {
	req := c.templateRequest()
	req.From, req.Rootfs = "", "/no/such/directory/"+randomWord()
	_, err := c.tryBuild(req, func(sdk.TemplateProgress) error { return nil })
	c.refusedField(err, "BuildTemplate of a directory that does not exist", sdk.CodeInvalidRequest, "rootfs")
}

// "an error that it returns ends the build" (BuildTemplate) What was built nevertheless, before
// it was heard, is whole.
func templateUnheard(c *scene) {
	unheard := errors.New("nobody listens")
	req := c.templateRequest()
	_, err := c.tryBuild(req, func(sdk.TemplateProgress) error { return unheard })
	c.check(errors.Is(err, unheard), "a build to which nobody listens has ended with %v", err)
	built := c.build(req)
	c.create(createOf(c, built)).run(c.suite.template.Code).succeeded()
	count := 0
	for _, t := range listedTemplates(c) {
		if t.Name == req.Name {
			count++
		}
	}
	equal(c, count, 1, "how often it is listed")
}
