package docs_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

func TestThePageOfConformanceCountsTheCases(t *testing.T) {
	page, err := markdown.Read("conformance.md")
	assert.NilError(t, err)
	text, err := page.WithGenerated("groups", groupsOfCases())
	assert.NilError(t, err)
	golden.Assert(t, text, "../conformance.md")
}

// groupsOfCases is a table. A case that runs in several languages counts once.
func groupsOfCases() string {
	var order []string
	names, inLanguages := map[string]map[string]bool{}, map[string]bool{}
	total := 0
	for _, c := range providertest.Cases() {
		if names[c.Group] == nil {
			order = append(order, c.Group)
			names[c.Group] = map[string]bool{}
		}
		if !names[c.Group][c.Name] {
			total++
		}
		names[c.Group][c.Name] = true
		inLanguages[c.Group] = inLanguages[c.Group] || c.Language != ""
	}
	var b strings.Builder
	b.WriteString("| group | cases | |\n| --- | --- | --- |\n")
	for _, group := range order {
		each := ""
		if inLanguages[group] {
			each = "in each language"
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", group, len(names[group]), each)
	}
	fmt.Fprintf(&b, "| | %d | %d with the languages |\n", total, len(providertest.Cases()))
	return b.String()
}

func TestTheSampleOfAReportIsOfTheSuiteOfToday(t *testing.T) {
	page, err := markdown.Read("conformance.md")
	assert.NilError(t, err)
	last := regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed, (\d+) skipped$`).FindStringSubmatch(page.Text)
	assert.Assert(t, last != nil)
	total := 0
	for _, count := range last[1:] {
		n, err := strconv.Atoi(count)
		assert.NilError(t, err)
		total += n
	}
	assert.Equal(t, total, len(providertest.Cases()), "the sample is of another suite: make it anew")
}
