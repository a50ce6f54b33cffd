package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestFilesAreFormatted(t *testing.T) {
	const ugly, pretty = "provider   \"a\" {\na=1 # one\n  long = 2\n}\n", "provider \"a\" {\n  a    = 1 # one\n  long = 2\n}\n"
	dir := fs.NewDir(t, "fmt", fs.WithFile("ugly.hcl", ugly, fs.WithMode(0o640)), fs.WithFile("pretty.hcl", pretty), fs.WithFile("broken.hcl", "a {\n"))
	one, two, broken := dir.Join("ugly.hcl"), dir.Join("pretty.hcl"), dir.Join("broken.hcl")

	got := runOn(t, "", "config", "fmt", "--check", one, two)
	assert.Equal(t, got, outcome{1, one + "\n", ""})
	got = runOn(t, "", "config", "fmt", broken, one, two)
	assert.Equal(t, got.code, 1)
	assert.Equal(t, got.out, one+"\n", "the others are formatted all the same")
	assert.Assert(t, is.Contains(got.err, "broken.hcl"))
	text, err := os.ReadFile(one)
	assert.NilError(t, err)
	assert.Equal(t, string(text), pretty)
	info, err := os.Stat(one)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o640))
	assert.Equal(t, runOn(t, "", "config", "fmt", "--check", one, two), outcome{0, "", ""})
	assert.Equal(t, runOn(t, ugly, "config", "fmt", "-"), outcome{0, pretty, ""})
}

func TestTheSchemaOfAConfiguration(t *testing.T) {
	dir := fs.NewDir(t, "schema", fs.WithFile("sandbox.hcl", "provider \"cloud\" {}\n"+tenantDemo), fs.WithFile("broken.hcl", "listen = 5\n"))
	own := runWith(t, describeCloud, "config", "schema")
	assert.Equal(t, own.code, 0)
	assert.Assert(t, is.Contains(own.out, `"$schema"`))
	assert.Assert(t, !strings.Contains(own.out, "api_key"))
	assert.Assert(t, is.Contains(runWith(t, describeCloud, "config", "schema", dir.Join("sandbox.hcl")).out, `"api_key"`))
	page := runWith(t, describeCloud, "config", "schema", "--markdown", dir.Join("sandbox.hcl"))
	assert.Assert(t, is.Contains(page.out, "## provider \"cloud\""))
	assert.Equal(t, runWith(t, describeCloud, "config", "schema", dir.Join("broken.hcl")).code, 1)

	silent := runWith(t, func(context.Context, *config.Config, *config.Provider) (description sdk.Description, diags config.Diagnostics, err error) {
		return description, nil, context.DeadlineExceeded
	}, "config", "schema", dir.Join("sandbox.hcl"))
	assert.Equal(t, silent.code, 0)
	assert.Assert(t, is.Contains(silent.err, `The settings of provider "cloud" are not known`))
}

func TestCheckAsJSON(t *testing.T) {
	dir := fs.NewDir(t, "check",
		fs.WithFile("right.hcl", "provider \"cloud\" {\n  api_key = \"hunter2\"\n}\n"+tenantDemo),
		fs.WithFile("wrong.hcl", "include = [\"more.hcl\"]\nprovider \"cloud\" {\n  api_kee = \"hunter2\"\n}\n"),
		fs.WithFile("more.hcl", "listen = \"<nowhere>\"\n"))
	for name, code := range map[string]int{"right": 0, "wrong": 1} {
		got := runWith(t, describeCloud, "check", "--json", dir.Join(name+".hcl"))
		assert.Equal(t, got.code, code)
		assert.Equal(t, got.err, "")
		text := regexp.MustCompile(`"revision": "[0-9a-f]{64}"`).ReplaceAllString(strings.ReplaceAll(got.out, dir.Path(), "DIR"), `"revision": "..."`)
		golden.Assert(t, text, "json_"+name+".txt")
	}
}
