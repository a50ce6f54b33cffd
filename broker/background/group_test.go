package background_test

import (
	"bytes"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
)

func TestAPanicEndsOnlyItsOwnTask(t *testing.T) {
	var log bytes.Buffer
	group := background.NewGroup(hclog.New(&hclog.LoggerOptions{Output: &log}))
	finished := false

	group.Go("broken", func() { panic("out of cheese") })
	group.Wait()
	group.Go("sound", func() { finished = true })
	group.Wait()

	assert.Assert(t, finished)
	assert.Check(t, cmp.Contains(log.String(), "out of cheese"))
	assert.Check(t, cmp.Contains(log.String(), "task=broken"))
}
