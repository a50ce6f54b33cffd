package codepolicy

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// Mode says what becomes of findings.
type Mode string

// The modes.
const (
	Off     Mode = "off"     // nothing is analysed
	Audit   Mode = "audit"   // findings come with the result
	Enforce Mode = "enforce" // code with a finding does not run
)

// MaxFindings is how many findings are told, the first ones of the code.
const MaxFindings = 50

// maxMessage bounds the text of a finding, in bytes.
const maxMessage = 300

// PythonAnalyser is a Python module with a class Policy, which takes what
// ForPython returns.
//
//go:embed code_policy.py
var PythonAnalyser string

// ForPython returns the policy as JSON for the Python analyser.
func (p Policy) ForPython() ([]byte, error) {
	return json.Marshal(struct {
		Rules
		Mode    Mode     `json:"mode"`
		Allowed []string `json:"allowed"`
		Limit   int      `json:"limit"`
	}{p.Python, p.Mode, p.Allowed, MaxFindings})
}

// Policy is a set of rules and what to do about them. Settings make one; as JSON
// it goes to the guest.
type Policy struct {
	Mode       Mode  `json:"mode"`
	Python     Rules `json:"python"`
	JavaScript Rules `json:"javascript"`
	// Allowed are names of rules that do not apply.
	Allowed []string `json:"allowed"`
}

// Rules are what is looked for in one language. Each makes a rule whose name is
// the language, the kind and the entry: python.import.os.
type Rules struct {
	// Imports are modules; what is in them is meant too.
	Imports []string `json:"imports"`
	// Calls are functions that are not to be used, called or not: builtins
	// and globals by their name, others with their module. A * at the end
	// stands for any rest.
	Calls []string `json:"calls"`
	// Attributes are not to be used of whatever object.
	Attributes []string `json:"attributes"`
	// Paths are directories whose files are not to be named.
	Paths []string `json:"paths"`
}

// Finding is a place in the code to which a rule applies.
type Finding struct {
	// Line and Column count from 1, columns in characters.
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

// String says all of it in one line.
func (f Finding) String() string {
	return fmt.Sprintf("line %d: %s (%s)", f.Line, f.Message, f.Rule)
}

// Bounded returns findings as they may be told to others: at most MaxFindings,
// with text that is short and valid.
func Bounded(findings []Finding) []Finding {
	findings = findings[:min(len(findings), MaxFindings)]
	for i, f := range findings {
		findings[i].Line, findings[i].Column = max(f.Line, 0), max(f.Column, 0)
		findings[i].Rule, findings[i].Message = clip(f.Rule), clip(f.Message)
	}
	return findings
}

func clip(s string) string { return validtext.Clip(s, maxMessage) }
