package docs_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestThePageOfErrorsIsTheTableOfTheSDK(t *testing.T) {
	page, err := markdown.Read("errors.md")
	assert.NilError(t, err)
	text, err := page.WithGenerated("codes", codes())
	assert.NilError(t, err)
	golden.Assert(t, text, "../errors.md")
}

func codes() string {
	var b strings.Builder
	b.WriteString("| code | meaning | HTTP status | retry | what to do |\n| --- | --- | --- | --- | --- |\n")
	for _, info := range sdk.CodeTable() {
		status := fmt.Sprint(info.HTTPStatus)
		if info.HTTPStatus == http.StatusOK {
			status = "200, in the result"
		}
		if info.Code == sdk.CodeInvalidRequest {
			status = "400, 405, 408, 413, 415, 422, 431"
		}
		retry := "no"
		if info.Retryable {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", info.Code, info.Title, status, retry, markdown.Cell(info.Advice))
	}
	return b.String()
}
