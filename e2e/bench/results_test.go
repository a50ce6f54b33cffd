package main

import (
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/golden"
)

func sampleResults() results {
	return results{
		Format: resultsFormat, Date: "2026-11-23T09:00:00Z", Commit: "abc", Machine: "2 CPUs.", Broker: "abc (go1.26.8, linux/amd64)",
		Lines: sampleLines(), Graphs: []graph{sampleGraph()},
	}
}

func TestResultsAreReadAsTheyWereWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new.json")
	assert.NilError(t, sampleResults().save(path))
	got, err := loadResults(path)
	assert.NilError(t, err)
	assert.DeepEqual(t, got, sampleResults())
}

func TestResultsThatCannotBeRead(t *testing.T) {
	dir := fs.NewDir(t, "bench", fs.WithFile("text", "| row |"), fs.WithFile("other", `{"format": 2}`))
	for name, want := range map[string]string{"text": "invalid character", "other": "has format 2, and not 1", "none": "no such file"} {
		_, err := loadResults(dir.Join(name))
		assert.ErrorContains(t, err, want)
	}
}

func TestRunsAreCompared(t *testing.T) {
	before, after := sampleResults(), sampleResults()
	after.Date, after.Broker = "2026-12-01T09:00:00Z", "def (go1.26.8, linux/amd64)"
	// A machine that is slower today, and does as well beside its bare figures.
	slower := func(s *series, by float64) *series {
		changed := series{N: s.N, All: figures{}}
		for q, v := range s.All {
			changed.All[q] = v * by
		}
		for _, f := range s.Turns {
			turn := figures{}
			for q, v := range f {
				turn[q] = v * by
			}
			changed.Turns = append(changed.Turns, turn)
		}
		return &changed
	}
	after.Lines[0].Ours, after.Lines[0].Beside = slower(after.Lines[0].Ours, 2), slower(after.Lines[0].Beside, 2)
	after.Lines[1].Ours = slower(after.Lines[1].Ours, 1.5) // it is a rate
	after.Lines[3].Ours = slower(after.Lines[3].Ours, 1.5)
	after.Lines = append(after.Lines[:2:2], after.Lines[3:]...) // one is not in both
	golden.Assert(t, compareResults(before, after), "compare.md")
}

func TestComparingTakesTwoFiles(t *testing.T) {
	assert.ErrorContains(t, compareFiles([]string{"one"}), "takes two files")
}
