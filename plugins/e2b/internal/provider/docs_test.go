package provider_test

import (
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
)

func TestThePageOfTheProviderListsItsSettings(t *testing.T) {
	page, err := markdown.Read("../../../../docs/providers/e2b.md")
	assert.NilError(t, err)
	schema := provider.New(hclog.NewNullLogger()).Describe().Schema
	assert.NilError(t, schema.Validate())
	text, err := page.WithGenerated("settings", markdown.Settings(schema))
	assert.NilError(t, err)
	golden.Assert(t, text, "../../../../../docs/providers/e2b.md")
}
