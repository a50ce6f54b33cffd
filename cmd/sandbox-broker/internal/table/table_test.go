package table_test

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
)

type row struct{ name, state, note string }

func columns() []table.Column[row] {
	return []table.Column[row]{
		{Head: "NAME", Cell: func(r row) string { return r.name }},
		{Head: "STATE", Cell: func(r row) string { return r.state }, Color: func(r row) table.Color {
			if r.state == "running" {
				return table.Green
			}
			return table.Plain
		}},
		{Head: "NOTE", Wide: true, Cell: func(r row) string { return r.note }},
	}
}

func TestATable(t *testing.T) {
	rows := []row{{"a", "running", "x"}, {"日本", "paused", ""}, {"esc\x1b[2Japed\nline", "running", "\x07"}}
	for name, c := range map[string]struct {
		rows []row
		o    table.Options
		want string
	}{
		"without rows": {nil, table.Options{}, "NAME  STATE\n"},
		"wide characters take two columns, and nothing steers the terminal": {rows, table.Options{Wide: true}, "" +
			"NAME              STATE    NOTE\n" +
			"a                 running  x\n" +
			"日本              paused   -\n" +
			"esc\uFFFD[2Japed line  running  \uFFFD\n"},
		"colors take no room": {rows[:2], table.Options{Colors: true}, "NAME  STATE\na     \x1b[32mrunning\x1b[0m\n日本  paused\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			assert.NilError(t, table.Print(&b, columns(), c.rows, c.o))
			assert.Equal(t, b.String(), c.want)
		})
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 119 * time.Minute: "119m",
		47 * time.Hour: "47h", 48 * time.Hour: "2d", -time.Minute: "-60s",
	} {
		assert.Equal(t, table.Duration(d), want)
	}
}
