package hostile_test

import (
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/e2e/hostile"
)

func TestThePageOfSecurityListsThePrograms(t *testing.T) {
	programs, err := hostile.Programs()
	assert.NilError(t, err)
	page, err := markdown.Read("../../docs/security.md")
	assert.NilError(t, err)
	text, err := page.WithGenerated("hostile programs", hostile.Page(programs))
	assert.NilError(t, err)
	golden.Assert(t, text, "../../../docs/security.md")
}
