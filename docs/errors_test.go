package docs_test

import (
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
)

func TestThePageOfErrorsIsTheTableOfTheSDK(t *testing.T) {
	page, err := markdown.Read("errors.md")
	assert.NilError(t, err)
	text, err := page.WithGenerated("codes", rest.CodesAsText())
	assert.NilError(t, err)
	golden.Assert(t, text, "../errors.md")
}
