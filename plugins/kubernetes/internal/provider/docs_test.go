package provider_test

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// The page is what `sandbox-broker plugin docs --update` makes of it.
func TestThePageOfTheProviderSaysWhatItSaysOfItself(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	plugin, err := providertest.InProcess(provider.New)(ctx)
	assert.NilError(t, err)
	defer func() { assert.Check(t, plugin.Stop(ctx)) }()
	client, err := wire.NewClient(ctx, plugin.Conn)
	assert.NilError(t, err)

	page, err := markdown.Read("../../../../docs/providers/kubernetes.md")
	assert.NilError(t, err)
	text, err := markdown.UpdateProvider(page.Text, client.Describe())
	assert.NilError(t, err)
	golden.Assert(t, text, "../../../../../docs/providers/kubernetes.md")
}
