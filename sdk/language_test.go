package sdk_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestLanguagesHaveTheNamesThatAgentsWrite(t *testing.T) {
	for name, want := range map[string]sdk.Language{
		"python": sdk.Python, "Python3": sdk.Python, " py ": sdk.Python,
		"javascript": sdk.JavaScript, "js": sdk.JavaScript, "Node": sdk.JavaScript, "nodejs": sdk.JavaScript,
		"bash": sdk.Bash, "sh": sdk.Bash, "SHELL": sdk.Bash,
		"ts": sdk.TypeScript, "r": sdk.R, "Java": sdk.Java,
		"cobol": "cobol", "": "",
	} {
		assert.Equal(t, sdk.ParseLanguage(name), want, name)
		assert.Equal(t, sdk.ParseLanguage(string(want)), want, "a canonical name is its own")
	}
}

func TestALanguageGetsTheFirstTemplateThatListsIt(t *testing.T) {
	d := sdk.Description{Templates: []sdk.Template{
		{Name: "small", Languages: []sdk.Language{sdk.Bash}},
		{Name: "data", Languages: []sdk.Language{sdk.Python, sdk.Bash}},
	}}
	assert.Equal(t, d.TemplateFor(sdk.Bash), "small")
	assert.Equal(t, d.TemplateFor(sdk.Python), "data")
	assert.Equal(t, d.TemplateFor(sdk.Java), "")
	assert.Equal(t, sdk.Description{}.TemplateFor(sdk.Python), "")
}
