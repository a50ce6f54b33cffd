package frontdoor

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
)

// What becomes of a feature on a provider.
const (
	Works   = "works"
	Refused = "refused"
)

// Features are what a door promises, with what has become of it on each provider: a table
// that is filled in by tests.
type Features struct {
	names    []string
	outcomes map[string]map[string]string // by provider and by name
}

// Report says what became of a feature. It must be the same each time.
func (f *Features) Report(t *testing.T, provider, name, outcome string) {
	t.Helper()
	assert.Check(t, outcome == Works || outcome == Refused, "%s: %q", name, outcome)
	if f.outcomes == nil {
		f.outcomes = map[string]map[string]string{}
	}
	if f.outcomes[provider] == nil {
		f.outcomes[provider] = map[string]string{}
	}
	if before, told := f.outcomes[provider][name]; told {
		assert.Check(t, before == outcome, "%s on %s: %s, and %s before", name, provider, outcome, before)
		return
	}
	f.outcomes[provider][name] = outcome
	for _, known := range f.names {
		if known == name {
			return
		}
	}
	f.names = append(f.names, name)
}

// ReportOutput reads the lines of a client: the outcome, and then the name.
func (f *Features) ReportOutput(t *testing.T, provider, output string) {
	t.Helper()
	for line := range strings.Lines(output) {
		outcome, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		f.Report(t, provider, strings.TrimSpace(name), outcome)
	}
}

// CheckPage compares the table with that in docs/front-doors.md, in the section generated
// for the door. With -update it writes that. The gate tries some of the providers, and takes the
// columns of the others from the page.
func (f *Features) CheckPage(t *testing.T, door string) {
	t.Helper()
	const page = "../../../docs/front-doors.md"
	text, err := markdown.Read(page)
	assert.NilError(t, err)
	there := shown(text.Text, door)
	var table strings.Builder
	fmt.Fprintf(&table, "| `%s` | %s |\n|%s\n", door, strings.Join(Providers, " | "), strings.Repeat(" --- |", len(Providers)+1))
	for _, name := range f.names {
		fmt.Fprintf(&table, "| %s |", markdown.Cell(name))
		for at, provider := range Providers {
			outcome, tried := f.outcomes[provider][name]
			if cells := there[markdown.Cell(name)]; testing.Short() && len(f.outcomes[provider]) == 0 && at < len(cells) {
				outcome, tried = cells[at], true
			}
			assert.Check(t, tried, "no test has tried on %s: %s", provider, name)
			table.WriteString(" " + outcome + " |")
		}
		table.WriteByte('\n')
	}
	want, err := text.WithGenerated("features of "+door, table.String())
	assert.NilError(t, err)
	golden.Assert(t, want, filepath.Join("..", page)) // which looks below testdata
}

// shown are the cells of the door's table on the page, by feature, in the order of Providers.
func shown(page, door string) map[string][]string {
	cells := map[string][]string{}
	_, table, _ := strings.Cut(page, "| `"+door+"` | "+strings.Join(Providers, " | ")+" |\n")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		fields := strings.Split(strings.TrimSpace(line), " | ")
		if len(fields) != len(Providers)+1 {
			continue
		}
		fields[len(Providers)] = strings.TrimSuffix(fields[len(Providers)], " |")
		cells[strings.TrimPrefix(fields[0], "| ")] = fields[1:]
	}
	return cells
}
