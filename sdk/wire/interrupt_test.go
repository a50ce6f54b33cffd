package wire_test

import (
	"context"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (*capable) Interrupt(_ context.Context, instanceID, executionID string) error {
	return sdk.Errorf(sdk.CodeNotFound, "%s %s", instanceID, executionID)
}

func TestAnInterruptCrossesTheWire(t *testing.T) {
	c := connect(t, newCapable())
	assert.Error(t, c.Interrupt(t.Context(), "i", "x"), "SB013: i x")
}
