package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/config"
)

const includeAll = "include = [\"conf.d/*.hcl\"]\n"

func tenantBlock(name string) string {
	return fmt.Sprintf("tenant %q {\n  token_sha256 = [\"%064x\"]\n}\n", name, name)
}

func load(t *testing.T, dir *fs.Dir) *config.Config {
	t.Helper()
	cfg, diags := config.Load(dir.Join("sandbox.hcl"), config.WithEnv(testEnv))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	return cfg
}

func tenantNames(cfg *config.Config) (names []string) {
	for _, tenant := range cfg.Tenants {
		names = append(names, tenant.Name)
	}
	return names
}

// A volume of Kubernetes is a directory of links into another one.
func TestIncludedFilesMayBeLinksIntoAVolume(t *testing.T) {
	dir := fs.NewDir(t, "config",
		fs.WithFile("sandbox.hcl", includeAll+"provider \"full\" {}\n"),
		fs.WithDir("conf.d",
			fs.WithDir("..2026_11_21", fs.WithFile("b.hcl", tenantBlock("b")), fs.WithFile("a.hcl", tenantBlock("a"))),
			fs.WithSymlink("..data", "..2026_11_21"),
			fs.WithSymlink("a.hcl", "..data/a.hcl"),
			fs.WithSymlink("b.hcl", "..data/b.hcl"),
			fs.WithSymlink("again.hcl", "..data/a.hcl"),
		))
	assert.DeepEqual(t, tenantNames(load(t, dir)), []string{"a", "b"})
}

func TestALinkThatLeadsNowhereIsAMistake(t *testing.T) {
	dir := fs.NewDir(t, "config",
		fs.WithFile("sandbox.hcl", includeAll+smallest),
		fs.WithDir("conf.d"), fs.WithSymlink("conf.d/a.hcl", "conf.d/gone"))
	_, diags := config.Load(dir.Join("sandbox.hcl"))
	assert.Assert(t, is.Len(diags, 1))
	assert.Equal(t, diags[0].Start.Line, 1)
	assert.Assert(t, is.Contains(diags[0].Detail, "conf.d/a.hcl: no such file or directory"))
}

func TestADirectoryToIncludeMayBeEmptyButNotMissing(t *testing.T) {
	dir := fs.NewDir(t, "config", fs.WithFile("sandbox.hcl", includeAll+smallest), fs.WithDir("conf.d"))
	load(t, dir)
	assert.NilError(t, os.Remove(dir.Join("conf.d")))
	_, diags := config.Load(dir.Join("sandbox.hcl"))
	assert.Assert(t, diags.HasErrors())
}

func TestFilesNamesEverythingToWatch(t *testing.T) {
	dir := fs.NewDir(t, "config",
		fs.WithFile("sandbox.hcl", includeAll+"provider \"full\" {\n  api_key = file(\"key\")\n  tokens = [file(\"key\")]\n}\n"),
		fs.WithFile("key", "0123456789"),
		fs.WithDir("conf.d", fs.WithFile("a.hcl", tenantBlock("a"))))
	cfg := load(t, dir)
	var got []string
	for _, f := range cfg.Files() {
		assert.NilError(t, f.Err)
		got = append(got, fmt.Sprintf("%s %s", f.Kind, strings.TrimPrefix(f.Path, dir.Path())))
	}
	assert.DeepEqual(t, got, []string{"main /sandbox.hcl", "directory /conf.d", "included /conf.d/a.hcl", "value /key"})
}

// What is wrong is corrected in the files that were read, so they are named in
// any case, and another content has another revision.
func TestAConfigurationThatIsWrongHasFilesAndARevision(t *testing.T) {
	dir := fs.NewDir(t, "config",
		fs.WithFile("sandbox.hcl", includeAll+smallest),
		fs.WithDir("conf.d", fs.WithFile("a.hcl", "tenant {")))
	cfg, diags := config.Load(dir.Join("sandbox.hcl"))
	assert.Assert(t, diags.HasErrors())
	assert.Assert(t, is.Len(cfg.Files(), 3))
	again, _ := config.Load(dir.Join("sandbox.hcl"))
	assert.Equal(t, cfg.Revision, again.Revision)
	assert.NilError(t, os.WriteFile(dir.Join("conf.d/a.hcl"), []byte(tenantBlock("a")), 0o600))
	right := load(t, dir)
	assert.Assert(t, right.Revision != cfg.Revision)

	cfg, diags = config.Load(dir.Join("gone.hcl"))
	assert.Assert(t, diags.HasErrors())
	assert.Assert(t, is.Len(cfg.Files(), 1))
	assert.ErrorIs(t, cfg.Files()[0].Err, os.ErrNotExist)
}

func TestEveryFileThatWasReadChangesTheRevision(t *testing.T) {
	dir := fs.NewDir(t, "config",
		fs.WithFile("sandbox.hcl", includeAll+"provider \"full\" {\n  api_key = file(\"key\")\n}\n"),
		fs.WithFile("key", "0123456789"),
		fs.WithDir("conf.d", fs.WithFile("a.hcl", tenantBlock("a"))))
	seen := map[string]string{load(t, dir).Revision: "nothing"}
	for path, content := range map[string]string{
		"key":          "0123456780",
		"conf.d/a.hcl": tenantBlock("a") + "# a comment\n",
		"conf.d/b.hcl": tenantBlock("b"),
		"sandbox.hcl":  includeAll + "provider \"full\" {\n  tokens = [file(\"key\")]\n}\n",
	} {
		assert.NilError(t, os.WriteFile(dir.Join(path), []byte(content), 0o600))
		revision := load(t, dir).Revision
		assert.Assert(t, seen[revision] == "", "%s and %s have the same revision", path, seen[revision])
		seen[revision] = path
	}
	assert.NilError(t, os.WriteFile(dir.Join("conf.d/.b.hcl.swp"), []byte("x"), 0o600))
	assert.Assert(t, seen[load(t, dir).Revision] != "", "a file that is not read changes nothing")
}

func TestAChangeIsTriedBeforeItIsWritten(t *testing.T) {
	dir := fs.NewDir(t, "config",
		fs.WithFile("sandbox.hcl", includeAll+"provider \"full\" {}\n"),
		fs.WithDir("conf.d", fs.WithFile("a.hcl", tenantBlock("a"))))
	changed := []byte(tenantBlock("b"))
	tried, diags := config.Load(dir.Join("sandbox.hcl"), config.WithContent(dir.Join("conf.d/a.hcl"), changed))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.DeepEqual(t, tenantNames(tried), []string{"b"})
	assert.DeepEqual(t, tenantNames(load(t, dir)), []string{"a"})
	assert.NilError(t, os.WriteFile(dir.Join("conf.d/a.hcl"), changed, 0o600))
	assert.Equal(t, load(t, dir).Revision, tried.Revision)
}

func TestMistakesComeInTheOrderOfTheFiles(t *testing.T) {
	dir := fs.NewDir(t, "config",
		fs.WithFile("sandbox.hcl", "include = [\"z.hcl\", \"a.hcl\"]\n\n\n\n\nlisten = 5\nprovider \"full\" {}\n"+tenantBlock("x")),
		fs.WithFile("a.hcl", "state = 5\n"), fs.WithFile("z.hcl", "\nplugin_dir = 5\n"))
	_, diags := config.Load(dir.Join("sandbox.hcl"))
	var got []string
	for _, d := range diags {
		got = append(got, fmt.Sprintf("%s:%d", strings.TrimPrefix(d.File, dir.Path()), d.Start.Line))
	}
	assert.DeepEqual(t, got, []string{"/sandbox.hcl:6", "/z.hcl:2", "/a.hcl:1"})
}

// These would take minutes, or all memory, if nothing held them.
func TestWhatCostsMuchIsRefusedEarly(t *testing.T) {
	t.Parallel()
	dir := fs.NewDir(t, "config", fs.WithFile("large", strings.Repeat("x", 64<<10)))
	digits := "[0,1,2,3,4,5,6,7,8,9]"
	for name, text := range map[string]string{
		"loops in loops":           "[for a in " + strings.Repeat(digits+" : [for a in ", 30) + digits + ": 1" + strings.Repeat("]", 31),
		"powers":                   "\"${1" + strings.Repeat("*1e400", 30_000) + "}\"",
		"one large power":          "\"${1e999999999}\"",
		"one file again and again": "\"" + strings.Repeat("${file(\"large\")}", 10_000) + "\"",
		"unknown blocks":           "5\n" + strings.Repeat("a {}\n", 40_000),
		"unknown words":            "[" + strings.Repeat("a,", 100_000) + "]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := config.Parse(dir.Join("x.hcl"), []byte("listen = "+text+"\n"+smallest))
			assert.Assert(t, diags.HasErrors())
			assert.Assert(t, len(diags) <= 201)
		})
	}
}
