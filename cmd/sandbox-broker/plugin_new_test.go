package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config"
)

func TestANewPluginBuildsAndKeepsTheContract(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "my_cloud")
	root, err := filepath.Abs("../..")
	assert.NilError(t, err)
	got := runWith(t, nil, "plugin", "new", "my_cloud", "--dir", dir, "--sdk", root, "--module", "example.com/a/my-cloud")
	assert.Equal(t, got.code, 0, got.err)
	golden.Assert(t, strings.NewReplacer(dir, "DIR", root, "CLONE").Replace(got.out), "plugin_new.txt")

	requireWhatIsHere(t, root, dir)
	tool := func(name string, args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOWORK=off")
		out, err := command.CombinedOutput()
		assert.NilError(t, err, "%s %s: %s", name, args, out)
		return string(out)
	}
	assert.Equal(t, tool("gofmt", "-l", "."), "")
	tool("go", "vet", "./...")
	// The groups whose limits of time say more about this machine are left to those
	// who have a provider to test.
	groups := "description|schema|configure|health|lifecycle|labels|execute|arguments|errors|capabilit"
	if testing.Short() {
		groups = "description|schema|configure"
	}
	tool("go", "test", "-run", "TestConformance/("+groups+")", "./...")
	// README and .gitignore mean one file, whatever the module is called.
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	assert.NilError(t, err)
	build := regexp.MustCompile(`(?m)^go build .*$`).FindString(string(readme))
	tool("sh", "-c", build)
	ignored, err := os.ReadFile(filepath.Join(dir, ".gitignore"))
	assert.NilError(t, err)
	assert.Equal(t, string(ignored), "/my_cloud\n")
	assert.Assert(t, is.Contains(string(readme), "`example.com/a/my-cloud`"))
	assert.Assert(t, is.Contains(string(readme), "sandbox-broker plugin verify ./my_cloud --config p.hcl"))

	described := runWith(t, nil, "plugin", "describe", filepath.Join(dir, "my_cloud"))
	assert.Equal(t, described.code, 0, described.err)
	assert.Assert(t, is.Contains(described.out, "my_cloud 0.1.0"))
	verified := runWith(t, nil, "plugin", "verify", filepath.Join(dir, "my_cloud"), "--run", "^schema/")
	assert.Equal(t, verified.code, 0, verified.out+verified.err)

	blocks, diags := config.LoadProviders(filepath.Join(dir, "p.hcl"), config.WithEnv(func(name string) (string, bool) { return "t", name == "MY_CLOUD_TOKEN" }))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.Equal(t, blocks[0].Label, "my_cloud")
}

// requireWhatIsHere stands in for go mod tidy: the modules are those of this one in
// their versions, so no network is needed.
func requireWhatIsHere(t *testing.T, root, dir string) {
	t.Helper()
	read := func(path string) *modfile.File {
		text, err := os.ReadFile(path)
		assert.NilError(t, err)
		file, err := modfile.Parse(path, text, nil)
		assert.NilError(t, err)
		return file
	}
	made := read(filepath.Join(dir, "go.mod"))
	for _, required := range read(filepath.Join(root, "go.mod")).Require {
		made.AddNewRequire(required.Mod.Path, required.Mod.Version, true)
	}
	text, err := made.Format()
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o600))
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
}

// A release of the broker asks for the SDK of that release.
func TestTheModuleOfANewPluginRequiresTheSDK(t *testing.T) {
	for name, c := range map[string]struct {
		data skeletonData
		want string
	}{
		"a release":                           {skeletonData{Module: "m", Go: "1.26.0", Version: "v1.2.3"}, "module m\n\ngo 1.26.0\n\nrequire github.com/sandbox-broker/sandbox-broker v1.2.3\n"},
		"a clone":                             {skeletonData{Module: "m", Go: "1.26.0", SDK: "/src"}, "module m\n\ngo 1.26.0\n\nrequire github.com/sandbox-broker/sandbox-broker v0.0.0\n\nreplace github.com/sandbox-broker/sandbox-broker => /src\n"},
		"a clone in a directory with a space": {skeletonData{Module: "m", Go: "1.26.0", SDK: "/my src"}, "module m\n\ngo 1.26.0\n\nrequire github.com/sandbox-broker/sandbox-broker v0.0.0\n\nreplace github.com/sandbox-broker/sandbox-broker => \"/my src\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := writeSkeleton(dir, c.data)
			assert.NilError(t, err)
			text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			assert.NilError(t, err)
			assert.Equal(t, string(text), c.want)
		})
	}
	assert.Assert(t, release.MatchString("v1.2.3") && release.MatchString("v1.0.0-rc.1"))
	assert.Assert(t, !release.MatchString("devel-0123456789ab+changes") && !release.MatchString("v1.2.3-4-g0123456-dirty"))
}

// The skeleton asks for the version of Go that the SDK needs.
func TestTheSkeletonHasTheVersionOfGoOfThisModule(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	assert.NilError(t, err)
	assert.Assert(t, is.Contains(string(mod), "\ngo "+skeletonGo+"\n"))
}

func TestWhatANewPluginCannotBe(t *testing.T) {
	full := fs.NewDir(t, "full", fs.WithFile("file", ""), fs.WithFile("go.mod", "module example.org/other\n"))
	half := fs.NewDir(t, "half", fs.WithFile("go.mod", "module "+sdkModule+"\n"))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a name with capitals":                {[]string{"MyCloud"}, "cannot be the name of a plugin"},
		"a name that is a path":               {[]string{"../x"}, "cannot be the name of a plugin"},
		"a name with a hyphen":                {[]string{"my-cloud"}, "is not of the form"},
		"a word of the admin API":             {[]string{"active"}, "is a word of the admin API"},
		"a plugin that comes with the broker": {[]string{"e2b"}, "comes with the broker"},
		"a name that Go keeps from modules":   {[]string{"con"}, "--module names another"},
		"a module without a domain":           {[]string{"x", "--module", "fmt"}, "--module names another"},
		"a module with a version":             {[]string{"x", "--module", "example.org/x@v1"}, "--module names another"},
		"the broker's own module":             {[]string{"x", "--module", sdkModule}, "is the broker's own module"},
		"a directory that is full":            {[]string{"x", "--dir", full.Path()}, "is not empty"},
		"no clone of the broker":              {[]string{"x", "--dir", full.Join("new"), "--sdk", half.Join("nowhere")}, "is no clone"},
		"a clone of something else":           {[]string{"x", "--dir", full.Join("new"), "--sdk", full.Path()}, `its go.mod is that of "example.org/other"`},
		"half a clone":                        {[]string{"x", "--dir", full.Join("new"), "--sdk", half.Path()}, "is no whole clone"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, nil, append([]string{"plugin", "new"}, c.args...)...)
			assert.Equal(t, got.code, 1)
			assert.Assert(t, is.Contains(got.err, c.want))
			assert.Equal(t, got.out, "")
		})
	}
}

// Nothing need be published: what runs from a clone builds against that clone.
func TestTheSDKOfANewPluginIsThatOfTheCloneAround(t *testing.T) {
	root, err := filepath.Abs("../..")
	assert.NilError(t, err)
	clone, version, err := (&pluginNewCommand{}).sdk()
	assert.NilError(t, err)
	assert.Equal(t, clone, root)
	assert.Equal(t, version, "")
}

// Outside of any clone there is nothing to build against, and the author hears it now
// and not from go mod tidy.
func TestWithoutACloneAndAReleaseThereIsNoSDK(t *testing.T) {
	t.Chdir(t.TempDir())
	_, _, err := (&pluginNewCommand{}).sdk()
	assert.ErrorContains(t, err, "name a clone of the broker's repository with --sdk")
}

func TestPathsArePastedIntoAShellAsTheyAre(t *testing.T) {
	assert.Equal(t, shellWord("/a/b-c_1.d"), "/a/b-c_1.d")
	assert.Equal(t, shellWord("/a b/it's"), `'/a b/it'\''s'`)
	assert.Equal(t, shellWord("/a;b"), "'/a;b'")
}
