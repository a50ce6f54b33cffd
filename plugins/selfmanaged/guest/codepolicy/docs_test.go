package codepolicy_test

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
)

func TestThePageOfSecurityListsTheRules(t *testing.T) {
	page, err := markdown.Read("../../../../docs/security.md")
	assert.NilError(t, err)
	text, err := page.WithGenerated("rules of the code policy", ruleTable(defaultPolicy(t, nil)))
	assert.NilError(t, err)
	golden.Assert(t, text, "../../../../../docs/security.md")
}

// ruleTable is the rules as a table, one row a kind.
func ruleTable(policy codepolicy.Policy) string {
	var b strings.Builder
	b.WriteString("| rules | entries |\n| --- | --- |\n")
	row := func(kind string, entries []string) {
		if len(entries) > 0 {
			fmt.Fprintf(&b, "| `%s` | `%s` |\n", kind, strings.Join(entries, "` `"))
		}
	}
	others := map[string][]string{}
	for _, rule := range policy.RuleNames() {
		language, rest, _ := strings.Cut(rule, ".")
		if rest == "import.computed" || rest == "attribute.computed" || !strings.Contains(rest, ".") {
			others[language] = append(others[language], rest)
		}
	}
	for _, language := range []struct {
		name  string
		rules codepolicy.Rules
	}{{"python", policy.Python}, {"javascript", policy.JavaScript}} {
		row(language.name+".import", language.rules.Imports)
		row(language.name+".call", language.rules.Calls)
		row(language.name+".attribute", language.rules.Attributes)
		row(language.name+".path", trimmed(language.rules.Paths))
	}
	row("python", others["python"])
	row("javascript", others["javascript"])
	return b.String()
}

func trimmed(paths []string) []string {
	var names []string
	for _, path := range paths {
		names = append(names, strings.TrimPrefix(path, "/"))
	}
	return names
}
