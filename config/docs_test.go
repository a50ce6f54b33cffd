package config

import (
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestThePageForAdminsListsEverySetting(t *testing.T) {
	page, err := markdown.Read("../docs/admin.md")
	assert.NilError(t, err)
	for name, schema := range map[string]sdk.Schema{
		"settings of the file": rootSchema(), "settings of log": logSchema(), "settings of metrics": metricsSchema(), "settings of limits": limitsSchema(),
		"settings of providers": activeSchema(), "settings of provider": pluginSchema(), "settings of tenant": tenantSchema(), "settings of admin": adminSchema(),
	} {
		text, err := page.WithGenerated(name, markdown.Settings(schema))
		assert.NilError(t, err)
		page = markdown.Parse(text)
	}
	golden.Assert(t, page.Text, "../../docs/admin.md")
}
