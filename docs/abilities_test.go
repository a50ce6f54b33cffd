package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	columnAbility    = "ability"
	columnCapability = "capability"
)

// abilities are the tables of the page whose first column is the ability. A row has its
// cells by the names of their columns.
func abilities(t *testing.T) (tables [][]map[string]string) {
	t.Helper()
	page, err := markdown.Read("abilities.md")
	assert.NilError(t, err)
	var columns []string
	for line := range strings.Lines(page.Text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			columns = nil
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == columnAbility:
			columns = cells
			tables = append(tables, nil)
		case columns == nil || cells[0] == "---":
		default:
			assert.Assert(t, len(cells) == len(columns), "not as many cells as columns: %s", line)
			row := map[string]string{}
			for i, column := range columns {
				row[column] = cells[i]
			}
			tables[len(tables)-1] = append(tables[len(tables)-1], row)
		}
	}
	assert.Assert(t, len(tables) > 1, "the tables are found")
	return tables
}

var (
	generatedCapabilities = regexp.MustCompile(`(?s)<!-- generated: capabilities -->(.*?)<!-- end -->`)
	inBackticks           = regexp.MustCompile("`([a-z_]+)`")
)

// capabilitiesOfProviders are those that the pages of the providers list, which the tests
// of each plugin keep as the plugin has them.
func capabilitiesOfProviders(t *testing.T) map[string][]sdk.Capability {
	t.Helper()
	paths, err := filepath.Glob("providers/*.md")
	assert.NilError(t, err)
	has := map[string][]sdk.Capability{}
	for _, path := range paths {
		page, err := markdown.Read(path)
		assert.NilError(t, err)
		section := generatedCapabilities.FindStringSubmatch(page.Text)
		assert.Assert(t, section != nil, "%s has no generated capabilities", path)
		provider := strings.TrimSuffix(filepath.Base(path), ".md")
		for _, name := range inBackticks.FindAllStringSubmatch(section[1], -1) {
			has[provider] = append(has[provider], sdk.Capability(name[1]))
		}
	}
	assert.Assert(t, len(has) > 1, "the pages are found: %v", paths)
	return has
}

func TestThePageOfAbilitiesAgreesWithTheProviders(t *testing.T) {
	providers := capabilitiesOfProviders(t)
	told := map[sdk.Capability]bool{}
	for _, table := range abilities(t) {
		for _, row := range table {
			name := strings.Trim(row[columnCapability], "`")
			if name == "" {
				continue
			}
			capability := sdk.Capability(name)
			told[capability] = true
			for provider, has := range providers {
				cell, ok := row[provider]
				assert.Assert(t, ok, "there is no column for the provider %s", provider)
				word, _, _ := strings.Cut(cell, ":")
				want := []string{"no"}
				if slices.Contains(has, capability) {
					want = []string{"yes", "part"}
				}
				assert.Check(t, slices.Contains(want, word), "%s, %s: %q, but the page of the provider says %v", row[columnAbility], provider, cell, want)
			}
		}
	}
	for _, capability := range sdk.Capabilities() {
		assert.Check(t, told[capability], "no row is for the capability %s", capability)
		delete(told, capability)
	}
	assert.Check(t, len(told) == 0, "there are no such capabilities: %v", told)
}

func TestEachAbilityIsThereInPartMissingOrUnknown(t *testing.T) {
	for _, table := range abilities(t) {
		for _, row := range table {
			for column, cell := range row {
				if column == columnAbility || column == columnCapability {
					continue
				}
				word, why, _ := strings.Cut(cell, ": ")
				assert.Check(t, slices.Contains([]string{"yes", "part", "no", "unknown"}, word), "%s, %s: %q", row[columnAbility], column, cell)
				assert.Check(t, word != "part" || why != "", "%s, %s: which part?", row[columnAbility], column)
			}
		}
	}
}
