package providertest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// templating is the provider with its templates changed.
type templating struct {
	*local.Provider
	create func(sdk.CreateRequest) sdk.CreateRequest
	build  func(context.Context, sdk.BuildTemplateRequest, func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error)
	list   func([]sdk.BuiltTemplate) []sdk.BuiltTemplate
	remove func(context.Context, string) error
}

func (p *templating) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	return p.Provider.Create(ctx, p.create(req))
}

func (p *templating) BuildTemplate(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
	return p.build(ctx, req, progress)
}

func (p *templating) ListTemplates(ctx context.Context) ([]sdk.BuiltTemplate, error) {
	list, err := p.Provider.ListTemplates(ctx)
	return p.list(list), err
}

func (p *templating) RemoveTemplate(ctx context.Context, image string) error {
	return p.remove(ctx, image)
}

func templates(change func(*templating)) func(*local.Provider) sdk.Provider {
	return func(p *local.Provider) sdk.Provider {
		t := &templating{
			Provider: p, build: p.BuildTemplate, remove: p.RemoveTemplate,
			create: func(req sdk.CreateRequest) sdk.CreateRequest { return req },
			list:   func(list []sdk.BuiltTemplate) []sdk.BuiltTemplate { return list },
		}
		change(t)
		return t
	}
}

func TestTemplatesThatBreakAPromiseAreFound(t *testing.T) {
	// built changes what is answered of a build.
	built := func(change func(sdk.BuildTemplateRequest, *sdk.BuiltTemplate)) func(*local.Provider) sdk.Provider {
		return templates(func(p *templating) {
			p.build = func(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
				t, err := p.Provider.BuildTemplate(ctx, req, progress)
				if err == nil {
					change(req, &t)
				}
				return t, err
			}
		})
	}
	asked := func(change func(*sdk.BuildTemplateRequest)) func(*local.Provider) sdk.Provider {
		return templates(func(p *templating) {
			p.build = func(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
				change(&req)
				return p.Provider.BuildTemplate(ctx, req, progress)
			}
		})
	}
	checkMutations(t, map[string]mutation{
		"instances are those of no template": {
			among: "templates/", fails: []string{"a build to which nobody listened can be made again", "instances are made of what was built", "its variables are below those of the creation", "what was not built is refused", "instances outlive the removal of their template"},
			wraps: templates(func(p *templating) {
				p.create = func(req sdk.CreateRequest) sdk.CreateRequest {
					if req.Image != "" {
						req.Image, req.Template = "", "any"
					}
					return req
				}
			}),
		},
		"another name": {
			among: "templates/what is built says what it is", fails: []string{""},
			wraps: built(func(_ sdk.BuildTemplateRequest, t *sdk.BuiltTemplate) { t.Name = "other" }),
		},
		"no languages": {
			among: "templates/what is built says what it is", fails: []string{""},
			wraps: built(func(_ sdk.BuildTemplateRequest, t *sdk.BuiltTemplate) { t.Languages = nil }),
		},
		"not listed": {
			among: "templates/what is built is listed", fails: []string{""},
			wraps: templates(func(p *templating) {
				p.list = func([]sdk.BuiltTemplate) []sdk.BuiltTemplate { return nil }
			}),
		},
		"another image each time": {
			among: "templates/built again of its source it is the same", fails: []string{""},
			wraps: asked(func(req *sdk.BuildTemplateRequest) {
				if req.Source != "" {
					req.Env = map[string]string{"ANEW": "x"}
				}
			}),
		},
		"one image for whatever is described": {
			among: "templates/what is described otherwise is another image", fails: []string{""},
			wraps: asked(func(req *sdk.BuildTemplateRequest) { req.Env = nil }),
		},
		"no variables": {
			among: "templates/its variables are below those of the creation", fails: []string{""},
			wraps: asked(func(req *sdk.BuildTemplateRequest) { req.Env = nil }),
		},
		"nothing is removed": {
			among: "templates/what was removed is not there any more", fails: []string{""},
			wraps: templates(func(p *templating) { p.remove = func(context.Context, string) error { return nil } }),
		},
		"what is not there is not removed": {
			among: "templates/what was removed is not there any more", fails: []string{""},
			wraps: templates(func(p *templating) {
				p.remove = func(ctx context.Context, image string) error {
					if strings.HasSuffix(image, "000") {
						return sdk.Errorf(sdk.CodeNotFound, "no such template")
					}
					return p.Provider.RemoveTemplate(ctx, image)
				}
			}),
		},
		"what cannot be built is another failure": {
			among: "templates/what cannot be built is refused with its field", fails: []string{""},
			wraps: templates(func(p *templating) {
				p.build = func(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
					t, err := p.Provider.BuildTemplate(ctx, req, progress)
					if err != nil {
						err = sdk.Errorf(sdk.CodeUnavailable, "it does not work")
					}
					return t, err
				}
			}),
		},
		"a build is in the way of the next": {
			among: "templates/a build to which nobody listened can be made again", fails: []string{""},
			wraps: templates(func(p *templating) {
				var left atomic.Bool
				p.build = func(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
					if left.Swap(true) {
						return sdk.BuiltTemplate{}, sdk.Errorf(sdk.CodeUnavailable, "it is being built")
					}
					return p.Provider.BuildTemplate(ctx, req, progress)
				}
			}),
		},
	})
}
