package codepolicy_test

import (
	"errors"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
)

func TestSettingsThatMakeNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		change           func(*codepolicy.Settings)
		setting, message string
	}{
		"an unknown mode":            {func(s *codepolicy.Settings) { s.Mode = "strict" }, "policy", "off, audit, enforce"},
		"no mode":                    {func(s *codepolicy.Settings) { s.Mode = "" }, "policy", "off, audit, enforce"},
		"a module of no language":    {func(s *codepolicy.Settings) { s.BlockedImports = []string{"os"} }, "policy_blocked_imports", `"os" does not begin with python: or javascript:`},
		"a language without rules":   {func(s *codepolicy.Settings) { s.BlockedCalls = []string{"bash:rm"} }, "policy_blocked_calls", `"bash:rm" does not begin`},
		"what is no module":          {func(s *codepolicy.Settings) { s.BlockedImports = []string{"python:os/path"} }, "policy_blocked_imports", "does not name anything in python"},
		"a prefix that is implied":   {func(s *codepolicy.Settings) { s.BlockedImports = []string{"javascript:node:fs"} }, "policy_blocked_imports", "does not name anything in javascript"},
		"nothing":                    {func(s *codepolicy.Settings) { s.BlockedCalls = []string{"python:"} }, "policy_blocked_calls", "does not name anything"},
		"all that begin with":        {func(s *codepolicy.Settings) { s.BlockedCalls = []string{"python:ev*"} }, "policy_blocked_calls", "only functions of a module"},
		"an exception from no rule":  {func(s *codepolicy.Settings) { s.AllowedRules = []string{"python.import.oss"} }, "policy_allowed_rules", `there is no rule "python.import.oss"`},
		"an exception that is empty": {func(s *codepolicy.Settings) { s.AllowedRules = []string{""} }, "policy_allowed_rules", "there is no rule"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := codepolicy.Settings{Mode: codepolicy.Audit, BlockedImports: codepolicy.DefaultBlockedImports(), BlockedCalls: codepolicy.DefaultBlockedCalls()}
			c.change(&settings)
			_, err := settings.Policy()
			wrong, ok := errors.AsType[*codepolicy.SettingError](err)
			assert.Assert(t, ok, "%v", err)
			assert.Equal(t, wrong.Setting, c.setting)
			assert.Assert(t, is.Contains(wrong.Reason, c.message))
		})
	}
}

func TestEveryRuleCanBeAllowed(t *testing.T) {
	policy := defaultPolicy(t, nil)
	names := policy.RuleNames()
	assert.Assert(t, slices.Contains(names, "python.path.etc"))
	assert.Assert(t, slices.Contains(names, "javascript.call.process.binding"))
	none := defaultPolicy(t, func(s *codepolicy.Settings) { s.AllowedRules = names })
	assert.Assert(t, is.Len(analyse(none, "require('fs'); eval('1'); [].constructor.constructor('x'); import(x)"), 0))
	assert.Assert(t, is.Len(analyse(none, "let ="), 0))
	assert.Assert(t, is.Len(analysePython(t, none, "import os, subprocess\neval(open('/etc/passwd').read())\n().__class__.__mro__")[0], 0))
}
