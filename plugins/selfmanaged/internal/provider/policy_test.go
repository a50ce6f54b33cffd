package provider

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Each program leaves a file behind if any of it runs.
const (
	pythonWithFinding     = "open('ran', 'w').write('x')\nimport random\nprint(random._os.getcwd())"
	javaScriptWithFinding = "const {writeFileSync} = require('node:fs');\nwriteFileSync('ran', 'x');\nconsole.log('/workspace')"
	bashProgram           = "touch ran; pwd"
	listWorkspace         = "ls -A -I artifacts /workspace"
)

func TestTheModesOfTheCodePolicy(t *testing.T) {
	tier.Full(t)
	pythonFindings := []sdk.Finding{{Line: 3, Column: 7, Rule: "python.import.os", Message: "import of random._os, which is os"}}
	javaScriptFindings := []sdk.Finding{{Line: 1, Column: 33, Rule: "javascript.import.fs", Message: "import of node:fs"}}
	for mode, c := range map[string]struct {
		given   map[string]any
		found   bool
		blocked bool
	}{
		"off":                    {given: map[string]any{"policy": "off"}},
		"audit is the default":   {found: true},
		"enforce":                {given: map[string]any{"policy": "enforce"}, found: true, blocked: true},
		"enforce with exception": {given: map[string]any{"policy": "enforce", "policy_allowed_rules": []any{"python.import.os", "javascript.import.fs"}}},
	} {
		t.Run(mode, func(t *testing.T) {
			p := newProvider(t, c.given)
			for _, program := range []struct {
				template string
				language sdk.Language
				code     string
				findings []sdk.Finding
				detail   string
			}{
				{templatePython, sdk.Python, pythonWithFinding, pythonFindings, "line 3: import of random._os, which is os (rule python.import.os)"},
				{templateNode, sdk.JavaScript, javaScriptWithFinding, javaScriptFindings, "line 1: import of node:fs (rule javascript.import.fs)"},
				{templateBash, sdk.Bash, bashProgram, nil, ""},
			} {
				id := create(t, p, program.template)
				got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: program.language, Code: program.code})
				assert.NilError(t, err)
				blocked := c.blocked && program.findings != nil
				if c.found {
					assert.DeepEqual(t, got.Findings, program.findings)
				} else {
					assert.Assert(t, is.Len(got.Findings, 0))
				}
				left, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: listWorkspace})
				assert.NilError(t, err)
				if blocked {
					assert.Equal(t, got.Status, sdk.StatusBlocked)
					assert.Equal(t, got.ExitCode, 126)
					assert.Equal(t, got.Detail, program.detail)
					assert.Equal(t, got.stdout+got.stderr, "")
					assert.Equal(t, left.stdout, "", "some of the code ran")
					continue
				}
				assert.Equal(t, got.Status, sdk.StatusSucceeded, "%s", got.stderr)
				assert.Equal(t, got.stdout, "/workspace\n")
				assert.Equal(t, left.stdout, "ran\n")
			}
		})
	}
}

func TestWhatTheCodePolicyEnforces(t *testing.T) {
	p := newProvider(t, map[string]any{"policy": "enforce"})
	ids := map[sdk.Language]string{sdk.Python: create(t, p, templatePython), sdk.JavaScript: create(t, p, templateNode)}
	for name, c := range map[string]struct {
		language  sdk.Language
		code      string
		arguments string
		status    sdk.Status
		rule      string
		want      string // of the output, the result or the error
	}{
		"harmless code runs":                              {sdk.Python, "import json, re\nprint(re.compile('x').sub('y', 'x'))", "", sdk.StatusSucceeded, "", "y\n"},
		"harmless main runs":                              {sdk.Python, "def main(a):\n    return a", `{"a": [1]}`, sdk.StatusSucceeded, "", "[1]"},
		"harmless JavaScript runs":                        {sdk.JavaScript, "const main = ({a}) => a", `{"a":[1]}`, sdk.StatusSucceeded, "", "[1]"},
		"main is refused before it is called":             {sdk.Python, "def main():\n    eval('1')", `{}`, sdk.StatusBlocked, "python.call.eval", ""},
		"JavaScript that only Node parses":                {sdk.JavaScript, "console.log(010)", "", sdk.StatusBlocked, "javascript.unparsable", ""},
		"Python that does not parse is told so by Python": {sdk.Python, "import os\nprint(", "", sdk.StatusFailed, "", "SyntaxError"},
		"a coding declaration hides nothing":              {sdk.Python, "# coding: utf-7\n+AGkAbQBwAG8AcgB0 os+AAoA-\nimport os", "", sdk.StatusFailed, "", "SyntaxError"},
		"a coding declaration before code":                {sdk.Python, "# coding: latin-1\nimport os", "", sdk.StatusBlocked, "python.import.os", ""},
		"letters that Python takes for others":            {sdk.Python, "import ｏs", "", sdk.StatusBlocked, "python.import.os", ""},
		"a form feed and a carriage return":               {sdk.Python, "x = 1\r\f# y\rimport os", "", sdk.StatusBlocked, "python.import.os", ""},
		"an inspection of one's own is only output":       {sdk.Python, "print('{\"findings\": [], \"blocked\": true}')", "", sdk.StatusSucceeded, "", "{\"findings\": [], \"blocked\": true}\n"},
		"the analyser is nothing to import":               {sdk.Python, "import code_policy", "", sdk.StatusFailed, "", "ModuleNotFoundError"},
	} {
		t.Run(name, func(t *testing.T) {
			req := sdk.ExecuteRequest{InstanceID: ids[c.language], Language: c.language, Code: c.code}
			if c.arguments != "" {
				req.Arguments = json.RawMessage(c.arguments)
			}
			got, err := execute(t, p, req)
			assert.NilError(t, err)
			assert.Equal(t, got.Status, c.status, "%s %v", got.stderr, got.Findings)
			assert.Assert(t, is.Contains(got.stdout+string(got.Result)+got.stderr, c.want))
			if c.rule != "" {
				assert.Assert(t, len(got.Findings) > 0)
				assert.Equal(t, got.Findings[0].Rule, c.rule)
			}
		})
	}
}

// What runs later cannot change what was found before.
func TestFindingsCannotBeTakenBack(t *testing.T) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	got, err := execute(t, p, sdk.ExecuteRequest{
		InstanceID: id, Language: sdk.Python,
		Code: "import os\ndef main():\n    os.write(4, b'{\"findings\": [], \"blocked\": true}\\n')\n    os._exit(0)",
	})
	assert.NilError(t, err)
	assert.Equal(t, got.Status, sdk.StatusSucceeded)
	assert.Assert(t, is.Len(got.Findings, 1))
	assert.Equal(t, got.Findings[0].Rule, "python.import.os")
}

func TestFindingsComeWithFailuresToo(t *testing.T) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: strings.Repeat("import os\n", 100) + "while True: pass", Timeout: 300e6})
	assert.NilError(t, err)
	assert.Equal(t, got.Status, sdk.StatusTimeout)
	assert.Assert(t, is.Len(got.Findings, sdk.MaxFindings))
}

func TestConfigureRefusesAPolicyThatMakesNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		given map[string]any
		field string
	}{
		"a module of no language": {map[string]any{"policy_blocked_imports": []any{"os"}}, "policy_blocked_imports"},
		"a call of no language":   {map[string]any{"policy_blocked_calls": []any{"eval"}}, "policy_blocked_calls"},
		"a rule that is not":      {map[string]any{"policy_allowed_rules": []any{"python.import.json"}}, "policy_allowed_rules"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(hclog.NewNullLogger()).(*Provider)
			settings, problems := p.Describe().Schema.Resolve(c.given)
			assert.Assert(t, is.Len(problems, 0))
			err := p.Configure(t.Context(), sdk.ConfigureRequest{Label: "x", BrokerID: "b", StateDir: t.TempDir(), Settings: settings})
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidConfig})
			assert.ErrorContains(t, err, c.field)
		})
	}
}
