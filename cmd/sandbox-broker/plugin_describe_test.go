package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// pluginDir is a directory with a plugin, built from source, and with files that are
// none.
func pluginDir(t *testing.T) *fs.Dir {
	t.Helper()
	dir := fs.NewDir(t, "plugins",
		fs.WithFile("README", "not to be executed", fs.WithMode(0o644)),
		fs.WithFile("chatty", "#!/bin/sh\necho hello\n", fs.WithMode(0o755)),
		fs.WithFile("anybodys", "#!/bin/sh\n", fs.WithMode(0o777)),
		fs.WithFile(".hidden", ""),
		fs.WithDir("directory"))
	assert.NilError(t, os.Chmod(dir.Join("anybodys"), 0o777))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir.Join("mock"), "../../e2e/mockprovider")
	out, err := build.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return dir
}

// Why a plugin does not start is often said on its standard error alone.
func TestTheLastWordsOfAPluginAreShown(t *testing.T) {
	dir := fs.NewDir(t, "plugins", fs.WithFile("dead", "#!/bin/sh\necho no license found >&2\nexit 4\n", fs.WithMode(0o755)))
	assert.NilError(t, os.Chmod(dir.Path(), 0o755))
	file := fs.NewFile(t, "sandbox.hcl", fs.WithContent("plugin_dir = \""+dir.Path()+"\"\nprovider \"dead\" {}\ntenant \"t\" { token_sha256 = [\""+strings.Repeat("a", 64)+"\"] }\n"))
	block := fs.NewFile(t, "block.hcl", fs.WithContent("provider \"dead\" {}\n"))
	for name, args := range map[string][]string{
		"list":                 {"plugin", "list", dir.Path()},
		"describe":             {"plugin", "describe", dir.Join("dead")},
		"verify":               {"plugin", "verify", dir.Join("dead")},
		"verify with settings": {"plugin", "verify", "--config", block.Path(), dir.Join("dead")},
		"check":                {"check", file.Path()},
		"check in JSON":        {"check", "--json", file.Path()},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, describePlugin, args...)
			said := got.out + got.err
			assert.Assert(t, is.Contains(said, "exited with status 4 before its handshake"))
			assert.Assert(t, is.Contains(said, "no license found"))
		})
	}
}

func TestPluginsAreListedDescribedAndDocumented(t *testing.T) {
	dir := pluginDir(t)
	page := fs.NewFile(t, "page.md", fs.WithContent("# Mine\n<!-- generated: settings -->\nold\n<!-- end -->\nand more\n"))
	for name, args := range map[string][]string{
		"plugin_list":          {"plugin", "list", dir.Path()},
		"plugin_describe":      {"plugin", "describe", dir.Join("mock")},
		"plugin_describe_json": {"plugin", "describe", "--json", dir.Join("mock")},
		"plugin_docs":          {"plugin", "docs", dir.Join("mock")},
		"plugin_docs_update":   {"plugin", "docs", dir.Join("mock"), "--update", page.Path()},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, nil, args...)
			assert.Equal(t, got.code, 0, got.err)
			if name == "plugin_docs_update" {
				assert.Equal(t, got.out, "")
				text, err := os.ReadFile(page.Path())
				assert.NilError(t, err)
				got.out = string(text)
			}
			assert.Assert(t, name != "plugin_describe_json" || json.Valid([]byte(got.out)))
			golden.Assert(t, strings.ReplaceAll(got.out, dir.Path(), "DIR"), name+".txt")
		})
	}
}

func TestThePluginsOfTheConfigurationAreListed(t *testing.T) {
	dir := fs.NewDir(t, "broker", fs.WithDir("mine"), fs.WithFile("sandbox.hcl", `plugin_dir = "mine"`+"\n"))
	got := runWith(t, nil, "plugin", "list", "--config", dir.Join("sandbox.hcl"))
	assert.Equal(t, got.code, 0, got.err)
	assert.Equal(t, got.out, "There is no file in "+dir.Join("mine")+".\n")

	t.Chdir(t.TempDir())
	got = runWith(t, nil, "plugin", "list")
	assert.Equal(t, got.code, 1, "there are no plugins beside the test")
	assert.Assert(t, is.Contains(got.err, filepath.Join(filepath.Dir(os.Args[0]), "plugins")))
}

func TestWhatIsNoPluginIsSaidInASentence(t *testing.T) {
	dir := fs.NewDir(t, "plugins", fs.WithFile("chatty", "#!/bin/sh\necho hello\n", fs.WithMode(0o755)))
	page := fs.NewFile(t, "page.md", fs.WithContent("# Mine\n"))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a file that is not there":     {[]string{"describe", dir.Join("absent")}, `there is no plugin "absent"`},
		"a program that is no plugin":  {[]string{"docs", dir.Join("chatty")}, "the plugin printed something else before its handshake"},
		"a directory that is not here": {[]string{"list", dir.Join("absent")}, "no such file or directory"},
		"a page without sections":      {[]string{"docs", filepath.Join(pluginDir(t).Path(), "mock"), "--update", page.Path()}, "the page has no section"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, nil, append([]string{"plugin"}, c.args...)...)
			assert.Equal(t, got.code, 1)
			assert.Equal(t, got.out, "")
			assert.Assert(t, is.Contains(got.err, c.want))
		})
	}
}

func TestTextOfAPluginDoesNotSteerTheTerminal(t *testing.T) {
	var out strings.Builder
	assert.NilError(t, writeDescription(&out, sdk.Description{
		Name: "x", Version: "\x1b[31m1", Summary: "first\nsecond\ttab\x07",
		Languages: []sdk.Language{"a\x1b[0m"},
		Schema:    sdk.Schema{{Name: "s", Type: sdk.TypeString, Default: "\x1b]0;title\x07", Description: "\u202ereversed"}},
	}))
	for _, r := range []string{"\x1b", "\x07", "\nsecond", "\u202e"} {
		assert.Assert(t, !strings.Contains(out.String(), r), "%q", out.String())
	}
}
