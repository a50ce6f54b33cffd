package codepolicy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The languages that have rules, as they are written in settings.
const (
	python     = "python"
	javaScript = "javascript"
)

// Settings are a policy as an operator writes it. Entries name the language:
// python:os, javascript:child_process.
type Settings struct {
	Mode           Mode
	BlockedImports []string
	BlockedCalls   []string
	// AllowedRules are names of rules, as findings tell them.
	AllowedRules []string
}

// Names of the settings, as SettingError tells them.
const (
	SettingMode           = "policy"
	SettingBlockedImports = "policy_blocked_imports"
	SettingBlockedCalls   = "policy_blocked_calls"
	SettingAllowedRules   = "policy_allowed_rules"
)

// DefaultBlockedImports is what BlockedImports is unless the operator says
// otherwise.
func DefaultBlockedImports() []string {
	return append(entries(python, defaultPython().Imports), entries(javaScript, defaultJavaScript().Imports)...)
}

// DefaultBlockedCalls is the same for BlockedCalls.
func DefaultBlockedCalls() []string {
	return append(entries(python, defaultPython().Calls), entries(javaScript, defaultJavaScript().Calls)...)
}

func entries(language string, names []string) []string {
	list := make([]string, 0, len(names))
	for _, name := range names {
		list = append(list, language+":"+name)
	}
	return list
}

// SettingError says which setting makes no sense, and why.
type SettingError struct {
	Setting string
	Reason  string
}

// Error returns both.
func (e *SettingError) Error() string { return e.Setting + ": " + e.Reason }

// What entries look like, by language.
var (
	importForms = map[string]*regexp.Regexp{
		python:     regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$`),
		javaScript: regexp.MustCompile(`^(@[\w.~-]+/)?[\w.~-]+(/[\w.~-]+)*$`),
	}
	callForms = map[string]*regexp.Regexp{
		python:     regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\.?\*)?$`),
		javaScript: regexp.MustCompile(`^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$`),
	}
)

// Policy checks the settings. An error is a *SettingError.
func (s Settings) Policy() (Policy, error) {
	p := Policy{Mode: s.Mode, Python: defaultPython(), JavaScript: defaultJavaScript(), Allowed: s.AllowedRules}
	if !slices.Contains([]Mode{Off, Audit, Enforce}, s.Mode) {
		return Policy{}, &SettingError{SettingMode, "must be one of off, audit, enforce"}
	}
	var err error
	if p.Python.Imports, p.JavaScript.Imports, err = split(SettingBlockedImports, s.BlockedImports, importForms); err != nil {
		return Policy{}, err
	}
	if p.Python.Calls, p.JavaScript.Calls, err = split(SettingBlockedCalls, s.BlockedCalls, callForms); err != nil {
		return Policy{}, err
	}
	for _, call := range p.Python.Calls {
		if strings.HasSuffix(call, "*") && !strings.Contains(call, ".") {
			return Policy{}, &SettingError{SettingBlockedCalls, fmt.Sprintf("python:%s: only functions of a module can be named with a *", call)}
		}
	}
	if p.Allowed == nil {
		p.Allowed = []string{}
	}
	rules := p.RuleNames()
	for _, rule := range p.Allowed {
		if !slices.Contains(rules, rule) && !p.withinImport(rule) {
			return Policy{}, &SettingError{SettingAllowedRules, fmt.Sprintf("there is no rule %q", rule)}
		}
	}
	return p, nil
}

func split(setting string, list []string, forms map[string]*regexp.Regexp) (py, js []string, err error) {
	py, js = []string{}, []string{} // null would be no list for the analyser
	for _, entry := range list {
		language, name, _ := strings.Cut(entry, ":")
		form, known := forms[language]
		switch {
		case !known:
			return nil, nil, &SettingError{setting, fmt.Sprintf("%q does not begin with python: or javascript:", entry)}
		case !form.MatchString(name):
			return nil, nil, &SettingError{setting, fmt.Sprintf("%q does not name anything in %s", entry, language)}
		case language == python:
			py = append(py, name)
		default:
			js = append(js, name)
		}
	}
	return py, js, nil
}

// The rules that have no entry.
const (
	rulePythonComputedImport    = "python.import.computed"
	rulePythonComputedAttribute = "python.attribute.computed"
	rulePythonUnanalysable      = "python.unanalysable"
	ruleComputedImport          = "javascript.import.computed"
	ruleComputedAttribute       = "javascript.attribute.computed"
	ruleAmbiguous               = "javascript.ambiguous"
	ruleUnparsable              = "javascript.unparsable"
)

// RuleNames lists every rule of the policy.
func (p Policy) RuleNames() []string {
	names := []string{
		rulePythonComputedImport, rulePythonComputedAttribute, rulePythonUnanalysable,
		ruleComputedImport, ruleComputedAttribute, ruleAmbiguous, ruleUnparsable,
	}
	for language, rules := range map[string]Rules{python: p.Python, javaScript: p.JavaScript} {
		for kind, list := range map[string][]string{
			".import.": rules.Imports, ".call.": rules.Calls, ".attribute.": rules.Attributes, ".path.": rules.Paths,
		} {
			for _, name := range list {
				names = append(names, language+kind+strings.TrimPrefix(name, "/"))
			}
		}
	}
	slices.Sort(names)
	return names
}

// withinImport reports whether a rule would be about a part of a blocked module,
// such as python.import.os.path: to allow that and nothing else makes sense.
func (p Policy) withinImport(rule string) bool {
	for prefix, rules := range map[string]struct {
		modules   []string
		separator string
	}{python + ".import.": {p.Python.Imports, "."}, javaScript + ".import.": {p.JavaScript.Imports, "/"}} {
		name, ok := strings.CutPrefix(rule, prefix)
		for _, module := range rules.modules {
			if ok && strings.HasPrefix(name, module+rules.separator) {
				return true
			}
		}
	}
	return false
}
