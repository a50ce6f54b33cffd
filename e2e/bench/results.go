package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"
)

// resultsFormat changes when files of before are not understood any more.
const resultsFormat = 1

// results of a run are kept in a file, to be compared with those of other runs.
type results struct {
	Format  int    `json:"format"`
	Date    string `json:"date"`
	Commit  string `json:"commit"`
	Machine string `json:"machine"`
	// Broker is the version of the binary that was measured.
	Broker string  `json:"broker"`
	Lines  []line  `json:"rows"`
	Graphs []graph `json:"graphs,omitempty"`
}

func (r results) save(path string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func loadResults(path string) (r results, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	if r.Format != resultsFormat {
		return r, fmt.Errorf("%s has format %d, and not %d", path, r.Format, resultsFormat)
	}
	return r, nil
}

// compareResults is a table of the rows that two runs have in common. The runs were
// not in turn: what is compared is how each stood to what was beside it in the same
// run, where there is such a thing, and the figures themselves where not. So a machine
// that is slower today makes no difference.
func compareResults(before, after results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "old: %s, broker %s, %s\n\nnew: %s, broker %s, %s\n\n", before.Date, before.Broker, before.Machine, after.Date, after.Broker, after.Machine)
	b.WriteString("| row | quantity | old | new | new to old | compared by | more than noise |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	olds := map[string]line{}
	for _, l := range before.Lines {
		olds[l.Row] = l
	}
	for _, l := range after.Lines {
		old, ok := olds[l.Row]
		if !ok || l.Ours == nil || old.Ours == nil {
			continue
		}
		for _, q := range []quantity{p50, p99, rate, memory, processes, processor, syncs} {
			x, first := old.Ours.All[q]
			y, second := l.Ours.All[q]
			if !first || !second {
				continue
			}
			values, by := comparableValues(q, old, l)
			change := median(values[1]) / median(values[0])
			p, really := distinct(values[0], values[1])
			verdict := "no"
			if really {
				verdict = "yes, worse"
				if (change < 1) == q.lowerIsBetter() {
					verdict = "yes, better"
				}
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %.2fx | %s | %s (p=%.3f, n=%d+%d) |\n",
				l.Row, q.word(), q.show(x), q.show(y), change, by, verdict, p, len(values[0]), len(values[1]))
		}
	}
	return b.String()
}

// comparableValues are the values of two lines that can be compared: of each turn, as a
// part of what was beside it there.
func comparableValues(q quantity, lines ...line) (values [][]float64, by string) {
	for _, l := range lines {
		if l.Beside == nil || l.Beside.All[q] == 0 {
			values = nil
			break
		}
		var parts []float64
		for i, f := range l.Ours.Turns {
			if i < len(l.Beside.Turns) && l.Beside.Turns[i][q] > 0 {
				parts = append(parts, f[q]/l.Beside.Turns[i][q])
			}
		}
		values = append(values, parts)
	}
	if values != nil {
		return values, "what is beside each"
	}
	for _, l := range lines {
		values = append(values, l.Ours.of(q))
	}
	return values, "itself"
}

// median of values, NaN of none.
func median(values []float64) float64 {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), confidence).Center
}
