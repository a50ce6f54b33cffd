package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config"
)

func TestWhatAStopDoesWithInstancesInClouds(t *testing.T) {
	for name, test := range map[string]struct {
		block string
		want  string
		fails string
	}{
		"destroys without the block":   {``, config.OnStopDestroy, ""},
		"destroys unless it is said":   {`providers { active = "mock" }`, config.OnStopDestroy, ""},
		"keeps":                        {"providers {\n active = \"mock\"\n on_stop = \"keep\"\n}", config.OnStopKeep, ""},
		"destroys on request":          {"providers {\n active = \"mock\"\n on_stop = \"destroy\"\n}", config.OnStopDestroy, ""},
		"knows no other word":          {"providers {\n active = \"mock\"\n on_stop = \"leave\"\n}", "", "keep"},
		"knows no truth for the words": {"providers {\n active = \"mock\"\n on_stop = true\n}", "", "keep"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "sandbox.hcl")
			text := "provider \"mock\" {}\ntenant \"t\" { token_sha256 = [\"" + strings.Repeat("a", 64) + "\"] }\n" + test.block + "\n"
			assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
			cfg, diags := config.Load(file)
			if test.fails != "" {
				var out strings.Builder
				assert.NilError(t, diags.Write(&out, config.Style{}))
				assert.Check(t, cmp.Contains(out.String(), test.fails))
				assert.Check(t, diags.HasErrors())
				return
			}
			assert.Assert(t, !diags.HasErrors(), "%v", diags)
			assert.Equal(t, cfg.OnStop, test.want)
		})
	}
}
