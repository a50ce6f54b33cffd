// Package guestpolicy has the settings of the code policy, for every provider whose sandboxes
// have a guest: the guest looks at code before it runs it. What the policy says and how it is
// applied is package codepolicy's.
package guestpolicy

import (
	"encoding/json"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Settings are those of a provider block.
type Settings struct {
	Mode           string   `config:"policy"`
	BlockedImports []string `config:"policy_blocked_imports"`
	BlockedCalls   []string `config:"policy_blocked_calls"`
	AllowedRules   []string `config:"policy_allowed_rules"`
}

// Encoded returns the policy as the guest reads it. The error is SB002 and names the setting.
func (s Settings) Encoded() ([]byte, error) {
	policy, err := codepolicy.Settings{
		Mode:           codepolicy.Mode(s.Mode),
		BlockedImports: s.BlockedImports,
		BlockedCalls:   s.BlockedCalls,
		AllowedRules:   s.AllowedRules,
	}.Policy()
	if wrong, ok := errors.AsType[*codepolicy.SettingError](err); ok {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, wrong.Setting, "%s", wrong.Reason)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(policy)
}

// Fields describe the settings.
func Fields() sdk.Schema {
	return sdk.Schema{
		{
			Name: codepolicy.SettingMode, Type: sdk.TypeString, Default: string(codepolicy.Audit),
			Options: []string{string(codepolicy.Off), string(codepolicy.Audit), string(codepolicy.Enforce)},
			Label:   "Code policy", Description: "What to do about code that names what it should not: audit reports findings with the result, enforce refuses the code with SB007, off does not look. The sandbox protects in any case.",
		},
		{
			Name: codepolicy.SettingBlockedImports, Type: sdk.TypeList, Default: codepolicy.DefaultBlockedImports(), Max: sdk.Bound(1000),
			Label: "Blocked imports", Description: "Modules that the code policy objects to, each behind its language: python:os, javascript:child_process. Given, the list replaces the default.",
		},
		{
			Name: codepolicy.SettingBlockedCalls, Type: sdk.TypeList, Default: codepolicy.DefaultBlockedCalls(), Max: sdk.Bound(1000),
			Label: "Blocked calls", Description: "Functions that the code policy objects to: builtins and globals by their name, others with their module; in Python a * at the end stands for any rest. Given, the list replaces the default.",
		},
		{
			Name: codepolicy.SettingAllowedRules, Type: sdk.TypeList, Default: []string{}, Max: sdk.Bound(1000),
			Label: "Allowed rules", Description: "Exceptions from the code policy: names of rules as findings tell them, such as python.import.os or, for a part of it, python.import.os.path.",
		},
	}
}
