package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

type outcome struct {
	code     int
	out, err string
}

func runWith(t *testing.T, ask describe, args ...string) outcome {
	t.Helper()
	var out, errOut strings.Builder
	term := &terminal{in: strings.NewReader(""), out: &out, err: &errOut, style: config.Style{Width: 100}}
	// A command that goes on although it should not is a failure, not a hang.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	code := run(ctx, args, term, ask)
	return outcome{code, out.String(), errOut.String()}
}

func TestACommandLineThatMakesNoSense(t *testing.T) {
	for name, args := range map[string][]string{
		"no command":           {},
		"an unknown command":   {"chek"},
		"an unknown flag":      {"check", "--fast"},
		"an argument too much": {"token", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, nil, args...)
			assert.Equal(t, got.code, 2)
			assert.Equal(t, got.out, "")
			assert.Assert(t, strings.Contains(got.err, "sandbox-broker --help"), got.err)
		})
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	got := runWith(t, nil, "--help")
	assert.Equal(t, got.code, 0)
	for _, command := range []string{"check", "token", "version"} {
		assert.Assert(t, strings.Contains(got.out, command), got.out)
	}
}

func TestVersion(t *testing.T) {
	for _, spelling := range []string{"version", "--version", "-version"} {
		got := runWith(t, nil, spelling)
		assert.Equal(t, got.code, 0, spelling)
		assert.Assert(t, regexp.MustCompile(`^sandbox-broker \S+ \(go\S+, linux/\w+\)\n$`).MatchString(got.out), got.out)
	}
}

func TestHelpAsACommandIsThatOfTheFlag(t *testing.T) {
	for _, command := range [][]string{{}, {"check"}, {"exec"}, {"plugin"}, {"plugin", "verify"}} {
		t.Run(strings.Join(command, " "), func(t *testing.T) {
			byCommand, byFlag := runWith(t, nil, append([]string{"help"}, command...)...), runWith(t, nil, append(command, "--help")...)
			assert.Equal(t, byCommand.code, 0, byCommand.err)
			assert.Equal(t, byCommand.out, byFlag.out)
		})
	}
	for _, command := range [][]string{{"chek"}, {"plugin", "verfy"}, {"check", "verify"}} {
		t.Run(strings.Join(command, " "), func(t *testing.T) {
			got := runWith(t, nil, append([]string{"help"}, command...)...)
			assert.Equal(t, got.code, 2)
			assert.Equal(t, got.out, "")
			assert.Assert(t, strings.Contains(got.err, "sandbox-broker --help"), got.err)
		})
	}
}

func TestATokenComesWithItsSum(t *testing.T) {
	got, again := runWith(t, nil, "token"), runWith(t, nil, "token")
	assert.Equal(t, got.code, 0)
	m := regexp.MustCompile(`(?m)^(sbk_[A-Za-z0-9_-]{43})$(?s:.*)^token_sha256 = \["([0-9a-f]{64})"\]$`).FindStringSubmatch(got.out)
	assert.Assert(t, m != nil, got.out)
	assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte(m[1]))), m[2])
	assert.Assert(t, got.out != again.out)
}

func TestCheckOfAFile(t *testing.T) {
	tenant := "tenant \"demo\" {\n  token_sha256 = [\"" + strings.Repeat("a", 64) + "\"]\n}\n"
	for name, test := range map[string]struct {
		src  string
		ask  describe
		code int
	}{
		"right_without_plugins": {"provider \"cloud\" {}\n" + tenant, nil, 0},
		"right":                 {"provider \"cloud\" {\n  api_key = \"hunter2\"\n}\n" + tenant, describeCloud, 0},
		"mistakes_of_both_kinds": {
			"listen = \"nowhere\"\n\nprovider \"cloud\" {\n  api_kee = \"hunter2\"\n}\n\n" + tenant + "\ntenant \"none\" {}\n", describeCloud, 1,
		},
		"plugin_that_does_not_start": {"provider \"cloud\" {}\n" + tenant, func(context.Context, *config.Config, *config.Provider) (sdk.Description, config.Diagnostics, error) {
			return sdk.Description{}, nil, sdk.Errorf(sdk.CodeNotInitialized, "no executable cloud in the plugin directory")
		}, 1},
		"plugins_of_a_wrong_directory": {"plugin_dir = 5\nprovider \"cloud\" {}\n" + tenant, func(context.Context, *config.Config, *config.Provider) (sdk.Description, config.Diagnostics, error) {
			return sdk.Description{}, nil, errors.New("must not be asked")
		}, 1},
		"broken_syntax": {"provider \"cloud\" {\n" + tenant, describeCloud, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := fs.NewDir(t, "check", fs.WithFile("sandbox.hcl", test.src))
			got := runWith(t, test.ask, "check", dir.Join("sandbox.hcl"))
			assert.Equal(t, got.code, test.code)
			all := strings.ReplaceAll("stdout:\n"+got.out+"stderr:\n"+got.err, dir.Path(), "DIR")
			assert.Assert(t, !strings.Contains(all, "hunter2"))
			golden.Assert(t, all, name+".txt")
		})
	}
}

func TestCheckOfAFileThatIsNotThere(t *testing.T) {
	t.Chdir(t.TempDir())
	got := runWith(t, nil, "check")
	assert.Equal(t, got.code, 1)
	assert.Assert(t, strings.Contains(got.err, "sandbox.hcl"), got.err)
	assert.Assert(t, strings.Contains(got.err, "No such file or directory."), got.err)
}

func describeCloud(_ context.Context, _ *config.Config, p *config.Provider) (sdk.Description, config.Diagnostics, error) {
	d := sdk.Description{Name: p.Plugin, Schema: sdk.Schema{
		{Name: "api_key", Type: sdk.TypeString, Required: true, Secret: true, Description: "The key of your account."},
	}}
	_, diags := p.Settings(d.Schema)
	return d, diags, nil
}
