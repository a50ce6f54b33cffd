package main

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"
)

func TestSettingsOfRAGFlowAreImported(t *testing.T) {
	const settings = `{"sandbox.provider_type": "e2b", "sandbox.e2b": "{\"api_key\": \"s3cret-of-e2b\", \"timeout\": 30}"}`
	dir := fs.NewDir(t, "import", fs.WithFile("settings.json", settings), fs.WithFile("broken.json", "{"))
	got := runOn(t, "", "config", "import", "ragflow", dir.Join("settings.json"))
	assert.Equal(t, got.code, 0, got.err)
	assert.Equal(t, got.out, "provider \"e2b\" {\n  api_key = env(\"E2B_API_KEY\")\n}\n\nproviders {\n  active = \"e2b\"\n}\n")
	assert.Assert(t, is.Contains(got.err, "e2b.timeout was left out"))
	assert.Equal(t, runOn(t, settings, "config", "import", "ragflow", "-"), got)

	keys := dir.Join("sealing.keys")
	assert.Equal(t, runOn(t, "", "keygen", keys).code, 0)
	got = runOn(t, "", "config", "import", "ragflow", "--key-file", keys, dir.Join("settings.json"))
	assert.Equal(t, got.code, 0, got.err)
	assert.Assert(t, !strings.Contains(got.out+got.err, "s3cret"))
	_, rest, _ := strings.Cut(got.out, "sealed(")
	value, _, _ := strings.Cut(rest, ")")
	assert.Equal(t, runOn(t, strings.Trim(value, `"`), "unseal", "--key-file", keys).out, "s3cret-of-e2b\n")

	got = runOn(t, "", "config", "import", "ragflow", dir.Join("broken.json"))
	assert.Equal(t, got.code, 1)
	assert.Assert(t, is.Contains(got.err, "not JSON"))
	assert.Equal(t, runOn(t, "", "config", "import", "ragflow", dir.Join("none.json")).code, 1)
}
