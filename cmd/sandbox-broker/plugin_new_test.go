package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	golden.Assert(t, strings.ReplaceAll(got.out, dir, "DIR"), "plugin_new.txt")

	// The modules are those of this one, so no network is needed.
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	tool := func(name string, args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
		out, err := command.CombinedOutput()
		assert.NilError(t, err, "%s %s: %s", name, args, out)
		return string(out)
	}
	assert.Equal(t, tool("gofmt", "-l", "."), "")
	tool("go", "vet", "./...")
	// The groups whose limits of time say more about this machine are left to those
	// who have a provider to test.
	tool("go", "test", "-run", "TestConformance/(description|schema|configure|health|lifecycle|labels|execute|arguments|errors|capabilit)", "./...")
	tool("go", "build", "-o", "my_cloud", ".")

	described := runWith(t, nil, "plugin", "describe", filepath.Join(dir, "my_cloud"))
	assert.Equal(t, described.code, 0, described.err)
	assert.Assert(t, is.Contains(described.out, "my_cloud 0.1.0"))
	verified := runWith(t, nil, "plugin", "verify", filepath.Join(dir, "my_cloud"), "--run", "^schema/")
	assert.Equal(t, verified.code, 0, verified.out+verified.err)

	blocks, diags := config.LoadProviders(filepath.Join(dir, "p.hcl"), config.WithEnv(func(name string) (string, bool) { return "t", name == "MY_CLOUD_TOKEN" }))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.Equal(t, blocks[0].Label, "my_cloud")
}

// A release of the broker asks for the SDK of that release.
func TestTheModuleOfANewPluginRequiresTheSDK(t *testing.T) {
	for name, c := range map[string]struct {
		data skeletonData
		want string
	}{
		"a release":     {skeletonData{Module: "m", Go: "1.26.0", Version: "v1.2.3"}, "module m\n\ngo 1.26.0\n\nrequire github.com/sandbox-broker/sandbox-broker v1.2.3\n"},
		"a checkout":    {skeletonData{Module: "m", Go: "1.26.0", SDK: "/src"}, "module m\n\ngo 1.26.0\n\nrequire github.com/sandbox-broker/sandbox-broker v0.0.0\n\nreplace github.com/sandbox-broker/sandbox-broker => /src\n"},
		"anything else": {skeletonData{Module: "m", Go: "1.26.0"}, "module m\n\ngo 1.26.0\n"},
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
	full := fs.NewDir(t, "full", fs.WithFile("file", ""))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a name with capitals":     {[]string{"MyCloud"}, "cannot be the name of a plugin"},
		"a name that is a path":    {[]string{"../x"}, "cannot be the name of a plugin"},
		"a directory that is full": {[]string{"x", "--dir", full.Path()}, "is not empty"},
		"no checkout of the SDK":   {[]string{"x", "--dir", full.Join("new"), "--sdk", full.Path()}, "is no checkout"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, nil, append([]string{"plugin", "new"}, c.args...)...)
			assert.Equal(t, got.code, 1)
			assert.Assert(t, is.Contains(got.err, c.want))
			assert.Equal(t, got.out, "")
		})
	}
}
