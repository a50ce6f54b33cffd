package main

import (
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/golden"
)

// readsConfiguration are the commands that read a configuration, with what else each
// of them must be given.
var readsConfiguration = map[string][]string{
	"audit verify":  {"--together", "/proc/none"},
	"serve":         nil,
	"check":         nil,
	"config schema": nil,
	"config fmt":    nil,
	"plugin list":   nil,
	"plugin verify": {"/proc/self/exe"},
	"seal":          nil,
	"unseal":        nil,
	"rotate":        nil,
	"state check":   nil,
	"state backup":  {"/proc/none/backup"},
	"state restore": nil,
}

func TestEveryCommandThatReadsAConfigurationTakesTheSameFlag(t *testing.T) {
	dir := fs.NewDir(t, "flag", fs.WithFile("broken.hcl", "plugin_dir = 5\nprovider \"mock\" {\n"))
	t.Chdir(t.TempDir()) // where there is no sandbox.hcl
	broken := dir.Join("broken.hcl")
	for command, more := range readsConfiguration {
		for _, flag := range [][]string{{"-c", broken}, {"-c" + broken}, {"--config", broken}, {"--config=" + broken}, {"-config", broken}} {
			t.Run(command+" "+strings.Join(flag, " "), func(t *testing.T) {
				got := runWith(t, describeCloud, append(append(strings.Fields(command), flag...), more...)...)
				assert.Check(t, is.Equal(got.code, 1), got.err)
				assert.Check(t, is.Contains(got.err, broken))
			})
		}
	}
}

// A command with the flag that the table above lacks is one that nobody has tried.
func TestTheTableOfCommandsThatReadAConfigurationIsWhole(t *testing.T) {
	parser, err := kong.New(&commandLine{}, kong.Name("sandbox-broker"), kong.Vars{"version": ""})
	assert.NilError(t, err)
	with := map[string]bool{}
	for _, leaf := range parser.Model.Leaves(false) {
		command := strings.TrimPrefix(strings.Join(strings.Fields(leaf.FullPath()), " "), "sandbox-broker ")
		for _, flag := range leaf.Flags {
			if flag.Name == "config" {
				with[command] = true
				assert.Check(t, is.Equal(flag.Short, 'c'), command)
				assert.Check(t, is.Equal(flag.PlaceHolder, "FILE"), command)
			}
		}
	}
	assert.Check(t, is.Len(with, len(readsConfiguration)))
	for command := range readsConfiguration {
		assert.Check(t, with[command], command)
	}
}

func TestTheFormsThatNameTheConfiguration(t *testing.T) {
	good := "provider \"cloud\" {\n  api_key = \"hunter2\"\n}\n" + tenantDemo
	dir := fs.NewDir(t, "forms", fs.WithFile("sandbox.hcl", good), fs.WithFile("other.hcl", good), fs.WithSymlink("link.hcl", "other.hcl"))
	t.Chdir(dir.Path())
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"check of none":                            {[]string{"check"}, 0, "sandbox.hcl: ok"},
		"check of the argument":                    {[]string{"check", "other.hcl"}, 0, "other.hcl: ok"},
		"check of the flag":                        {[]string{"check", "-c", "other.hcl"}, 0, "other.hcl: ok"},
		"check as JSON of the flag":                {[]string{"check", "--json", "-c", "other.hcl"}, 0, `"other.hcl"`},
		"check of one file twice":                  {[]string{"check", "-c", "other.hcl", "./other.hcl"}, 0, "other.hcl: ok"},
		"check of one file by two names":           {[]string{"check", "-c", "link.hcl", "other.hcl"}, 0, "link.hcl: ok"},
		"check of two files":                       {[]string{"check", "-c", "other.hcl", "sandbox.hcl"}, exitUsage, "name one file: both sandbox.hcl and --config other.hcl are there"},
		"check of two files, one is not there":     {[]string{"check", "none.hcl", "--config", "other.hcl"}, exitUsage, "name one file: both none.hcl and --config other.hcl are there"},
		"check of a name that is empty":            {[]string{"check", ""}, 1, "The configuration cannot be read"},
		"check of a flag that is empty":            {[]string{"check", "-c", ""}, 1, "The configuration cannot be read"},
		"the schema of the argument":               {[]string{"config", "schema", "other.hcl"}, 0, `"api_key"`},
		"the schema of the flag":                   {[]string{"config", "schema", "--config", "other.hcl"}, 0, `"api_key"`},
		"the schema of a flag that is empty":       {[]string{"config", "schema", "--config", ""}, 1, "The configuration cannot be read"},
		"the schema of two files":                  {[]string{"config", "schema", "-c", "other.hcl", "sandbox.hcl"}, exitUsage, "name one file: both sandbox.hcl and --config other.hcl are there"},
		"the layout of none":                       {[]string{"config", "fmt", "--check"}, 0, ""},
		"the layout of several":                    {[]string{"config", "fmt", "--check", "sandbox.hcl", "other.hcl"}, 0, ""},
		"the layout of the flag and no other":      {[]string{"config", "fmt", "-c", "other.hcl", "other.hcl"}, 0, ""},
		"the layout of standard input":             {[]string{"config", "fmt", "-c", "-"}, 0, ""},
		"the layout of the flag beside another":    {[]string{"config", "fmt", "-c", "other.hcl", "other.hcl", "sandbox.hcl"}, exitUsage, "name one file: both sandbox.hcl and --config other.hcl are there"},
		"the layout of the flag and of what comes": {[]string{"config", "fmt", "-c", "other.hcl", "-"}, exitUsage, "name one file: both - and --config other.hcl are there"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, describeCloud, test.args...)
			assert.Equal(t, got.code, test.code, got.err)
			assert.Assert(t, is.Contains(got.out+got.err, test.says))
		})
	}
}

func TestTheFlagLaysOutItsFile(t *testing.T) {
	dir := fs.NewDir(t, "fmt", fs.WithFile("ugly.hcl", "a=1\n"))
	got := runWith(t, nil, "config", "fmt", "-c", dir.Join("ugly.hcl"))
	assert.Equal(t, got, outcome{0, dir.Join("ugly.hcl") + "\n", ""})
	text, err := os.ReadFile(dir.Join("ugly.hcl"))
	assert.NilError(t, err)
	assert.Equal(t, string(text), "a = 1\n")
}

func TestTwoFilesWhereOneIsMeant(t *testing.T) {
	var all strings.Builder
	for _, args := range [][]string{
		{"check", "a.hcl", "--config", "b.hcl"},
		{"config", "schema", "a.hcl", "--config", "b.hcl"},
		{"config", "fmt", "a.hcl", "b.hcl", "--config", "b.hcl"},
	} {
		got := runWith(t, nil, args...)
		assert.Equal(t, got.code, exitUsage)
		assert.Equal(t, got.out, "")
		all.WriteString("$ sandbox-broker " + strings.Join(args, " ") + "\n" + got.err)
	}
	golden.Assert(t, all.String(), "two_files.txt")
}

func TestTheHelpOfCommandsThatTakeTheConfigurationBothWays(t *testing.T) {
	for name, command := range map[string][]string{
		"help_check": {"check"}, "help_config_schema": {"config", "schema"}, "help_config_fmt": {"config", "fmt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("COLUMNS", "80")
			got := runWith(t, nil, append(command, "--help")...)
			assert.Equal(t, got.code, 0)
			golden.Assert(t, got.out, name+".txt")
		})
	}
}
