package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/frames"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/program/javascript"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// exitBlocked is the exit code of code that was not run: what shells say of a
// program that they may not start.
const exitBlocked = 126

// inspection is what the code policy says of one piece of code.
type inspection struct {
	Findings []codepolicy.Finding `json:"findings"`
	Blocked  bool                 `json:"blocked"`
}

// preparePolicy reads the policy that the plugin sends, and puts it where the
// Python runner finds it. Without one there is no file.
func preparePolicy(encoded []byte) (codepolicy.Policy, error) {
	policy := codepolicy.Policy{Mode: codepolicy.Off}
	if len(encoded) == 0 {
		return policy, nil
	}
	if err := json.Unmarshal(encoded, &policy); err != nil {
		return policy, fmt.Errorf("read the code policy: %w", err)
	}
	if policy.Mode == codepolicy.Off {
		return policy, nil
	}
	rules, err := policy.ForPython()
	if err != nil {
		return policy, fmt.Errorf("encode the code policy: %w", err)
	}
	for name, content := range map[string][]byte{"code_policy.py": []byte(codepolicy.PythonAnalyser), "code_policy.json": rules} {
		if err := os.WriteFile(filepath.Join(RunDir, name), content, 0o444); err != nil {
			return policy, fmt.Errorf("store the code policy: %w", err)
		}
	}
	return policy, nil
}

// inspectJavaScript looks into code before it goes to Node: whether its main
// expects to be called, and what the policy says.
func inspectJavaScript(policy codepolicy.Policy, req *providerv1.ExecuteRequest) (callMain bool, v inspection) {
	mayCall := req.Arguments == nil && strings.Contains(req.GetCode(), "main")
	if !mayCall && policy.Mode == codepolicy.Off {
		return false, v
	}
	program, err := javascript.Parse(req.GetCode())
	callMain = mayCall && program.ExpectsCall()
	if policy.Mode != codepolicy.Off {
		v.Findings = policy.JavaScriptFindings(program, err)
		v.Blocked = policy.Mode == codepolicy.Enforce && len(v.Findings) > 0
	}
	return callMain, v
}

// inspected takes the inspection that the Python runner sends before it runs any of the
// code. There is none if the interpreter ended before; then nothing of the code
// has run.
func (r *report) inspected(f frames.Frame) {
	r.calls = r.calls || f.Call
	var v inspection
	if json.Unmarshal(f.Data, &v) != nil {
		return
	}
	v.Findings = codepolicy.Bounded(v.Findings)
	r.inspection = v
}

// findings are what the policy objects to, as the SDK has them.
func (v inspection) findings() []sdk.Finding {
	var list []sdk.Finding
	for _, f := range v.Findings {
		list = append(list, sdk.Finding{Line: f.Line, Column: f.Column, Rule: f.Rule, Message: f.Message})
	}
	return list
}
