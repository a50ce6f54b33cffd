package pluginhost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The connection to a plugin is lost, which looks the same whether its process has
// died or not. Only of one that lives may something come of the call yet.
func TestABrokenConnectionSaysWhetherTheProcessLives(t *testing.T) {
	type explainer interface {
		Explain(ctx context.Context, err error) error
	}
	type survivor interface {
		error
		ProcessLives() bool
	}
	h := newHost(t)
	process := h.configured(h.spec("mock"), nil)
	p, ok := process.Provider().(explainer)
	assert.Assert(t, ok)
	lost := sdk.Errorf(sdk.CodeUnavailable, "%w", wire.ErrPluginGone)

	err := p.Explain(t.Context(), lost)
	assertPublic(t, err, sdk.CodeUnavailable, `provider "box": the plugin ended, or its connection did, during the call`)
	assert.ErrorIs(t, err, wire.ErrPluginGone)
	living, ok := errors.AsType[survivor](err)
	assert.Assert(t, ok && living.ProcessLives())

	process.Stop(within(t, time.Minute))
	err = p.Explain(t.Context(), lost)
	assertPublic(t, err, sdk.CodeUnavailable, `provider "box": the plugin ended during the call`)
	assert.ErrorIs(t, err, wire.ErrPluginGone)
	_, ok = errors.AsType[survivor](err)
	assert.Assert(t, !ok)
}
