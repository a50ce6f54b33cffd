package wire_test

import (
	"context"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// cloudy has instances that any broker can serve.
type cloudy struct {
	capable
	asked []string
}

func (c *cloudy) ListOf(_ context.Context, broker string) ([]sdk.Instance, error) {
	if broker == "twice" {
		return []sdk.Instance{{ID: "x"}, {ID: "x"}}, nil
	}
	return []sdk.Instance{{ID: "of-" + broker, Labels: map[string]string{sdk.LabelBroker: broker}}}, nil
}

func (c *cloudy) Adopt(_ context.Context, id, broker string) error {
	c.asked = append(c.asked, "adopt "+id+" of "+broker)
	if id == "unknown" {
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	return nil
}

func (c *cloudy) Release(_ context.Context, id string) error {
	c.asked = append(c.asked, "release "+id)
	return nil
}

func TestAdoptionCrossesTheWire(t *testing.T) {
	p := &cloudy{capable: *newCapable()}
	c := connect(t, p)
	assert.Check(t, is.Contains(c.Describe().Capabilities, sdk.CapabilityAdoption))
	listed, err := c.ListOf(t.Context(), "a")
	assert.NilError(t, err)
	assert.DeepEqual(t, listed, []sdk.Instance{{ID: "of-a", Labels: map[string]string{sdk.LabelBroker: "a"}}})
	_, err = c.ListOf(t.Context(), "twice")
	assert.ErrorContains(t, err, "twice")
	assert.NilError(t, c.Adopt(t.Context(), "x", "a"))
	assert.Equal(t, sdk.CodeOf(c.Adopt(t.Context(), "unknown", "a")), sdk.CodeNotFound)
	assert.NilError(t, c.Release(t.Context(), "x"))
	assert.Equal(t, strings.Join(p.asked, ", "), "adopt x of a, adopt unknown of a, release x")

	bound := connect(t, newCapable())
	_, err = bound.ListOf(t.Context(), "a")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotSupported)
	assert.Equal(t, sdk.CodeOf(bound.Adopt(t.Context(), "x", "a")), sdk.CodeNotSupported)
	assert.Equal(t, sdk.CodeOf(bound.Release(t.Context(), "x")), sdk.CodeNotSupported)
}
