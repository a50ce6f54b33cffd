package provider_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A request for files goes in a variable of the environment, which Linux bounds.
func TestALargeTextIsReplaced(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	old := strings.Repeat("old\n", 100<<10)
	_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: "f"}, strings.NewReader("<"+old+old+">"))
	assert.NilError(t, err)
	replaced, err := p.ReplaceInFiles(t.Context(), sdk.ReplaceInFilesRequest{InstanceID: id, Paths: []string{"f"}, Old: old, New: "new"})
	assert.NilError(t, err)
	assert.DeepEqual(t, replaced, []sdk.FileReplacement{{Path: "/workspace/f", Count: 2}})
	assert.Equal(t, bash(t, p, id, "cat f; ls -A /tmp | grep sandbox-broker || true"), "<newnew>")
}
