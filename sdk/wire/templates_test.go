package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.TemplateBuilder = (*capable)(nil)

// builtTemplate is what the templates of capable are, but for what their names say.
func builtTemplate(name string) sdk.BuiltTemplate {
	sum := "sha256:" + strings.Repeat("a", 64)
	t := sdk.BuiltTemplate{Name: name, Image: sum, Source: sum, Languages: []sdk.Language{sdk.Python}, Bytes: 7}
	switch name {
	case "bad-image":
		t.Image = "sha256:../../etc"
	case "bad-source":
		t.Source = strings.Repeat("a", 64)
	case "bad-language":
		t.Languages = []sdk.Language{"no such\nlanguage"}
	case "bad-name":
		t.Name = "<script>"
	}
	return t
}

func (*capable) BuildTemplate(_ context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
	if req.Dockerfile != "" {
		text, err := json.Marshal([]any{req.Dockerfile, req.Context, req.BuildArgs, req.Network})
		return builtTemplate(req.Name), errors.Join(err, progress(sdk.TemplateProgress{Step: string(text)}))
	}
	if req.Name == "refused" {
		return sdk.BuiltTemplate{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "no")
	}
	step := sdk.TemplateProgress{Step: req.From + " " + strings.Join(req.Packages, " ") + " " + req.Env["A"], Done: 1, Total: 2}
	if req.Name == "lines" {
		step.Step = "one\ntwo"
	}
	return builtTemplate(req.Name), errors.Join(progress(step), progress(sdk.TemplateProgress{Step: strings.Repeat("x", 1000)}))
}

func (*capable) ListTemplates(context.Context) ([]sdk.BuiltTemplate, error) {
	return []sdk.BuiltTemplate{builtTemplate("a")}, nil
}

func (*capable) RemoveTemplate(_ context.Context, image string) error {
	return sdk.Errorf(sdk.CodeUnavailable, "%s", image)
}

func TestTemplatesCrossTheWire(t *testing.T) {
	c := connect(t, newCapable())
	var steps []sdk.TemplateProgress
	progress := func(p sdk.TemplateProgress) error {
		steps = append(steps, p)
		return nil
	}
	req := sdk.BuildTemplateRequest{Name: "a", From: "example.com/x:1", Packages: []string{"p", "q==1"}, Env: map[string]string{"A": "b"}}
	built, err := c.BuildTemplate(t.Context(), req, progress)
	assert.NilError(t, err)
	assert.DeepEqual(t, built, builtTemplate("a"))
	assert.DeepEqual(t, steps, []sdk.TemplateProgress{{Step: "example.com/x:1 p q==1 b", Done: 1, Total: 2}, {Step: strings.Repeat("x", 200)}})
	list, err := c.ListTemplates(t.Context())
	assert.NilError(t, err)
	assert.DeepEqual(t, list, []sdk.BuiltTemplate{builtTemplate("a")})
	assert.Error(t, c.RemoveTemplate(t.Context(), "sha256:x"), "SB009: sha256:x")

	steps = nil
	_, err = c.BuildTemplate(t.Context(), sdk.BuildTemplateRequest{
		Name: "a", Dockerfile: "/d", Context: "/c", BuildArgs: map[string]string{"A": "b"}, Network: &sdk.NetworkPolicy{MaxConnections: 7},
	}, progress)
	assert.NilError(t, err)
	assert.Equal(t, len(steps), 1)
	assert.Equal(t, steps[0].Step, `["/d","/c",{"A":"b"},{"Rules":null,"MaxConnections":7,"MaxBytes":0,"TenantConnections":0,"TenantBytes":0,"Secrets":null}]`)
	for name, want := range map[string]string{
		"refused": "SB010: from: no", "bad-image": "no SHA-256 sum", "bad-source": "no SHA-256 sum", "bad-language": "languages that are not acceptable",
		"bad-name": "whose name", "lines": "more than one line",
	} {
		req.Name = name
		_, err := c.BuildTemplate(t.Context(), req, progress)
		assert.ErrorContains(t, err, want, name)
	}
	req.Name, req.Source = "a", "sha256:"+strings.Repeat("b", 64)
	_, err = c.BuildTemplate(t.Context(), req, progress)
	assert.ErrorContains(t, err, "built another source")
	_, err = c.BuildTemplate(t.Context(), sdk.BuildTemplateRequest{Name: "a"}, progress)
	assert.ErrorContains(t, err, "give one of from, rootfs and dockerfile")
	unheard := errors.New("nobody listens")
	_, err = c.BuildTemplate(t.Context(), sdk.BuildTemplateRequest{Name: "a", From: "x"}, func(sdk.TemplateProgress) error { return unheard })
	assert.ErrorIs(t, err, unheard)
}
