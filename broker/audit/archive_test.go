package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// hostileSession is what an agent may choose to make a line of its own of it.
const hostileSession = "s\n{\"seq\":1,\"operation\":\"forged\"}\u2028<b>ÄÖ\x00"

// days makes a log of three days that goes on, with ten effects on each; the first two are
// compressed if they are to be.
func days(t testing.TB, compressed bool) (*audit.Log, *clock) {
	t.Helper()
	now := newClock()
	log := open(t, audit.Options{Dir: newDir(t), Now: now.Now})
	for day := range 3 {
		if day > 0 {
			now.move(24 * time.Hour)
		}
		for i := range 10 {
			now.move(time.Minute)
			do(t, log, day, i)
		}
	}
	// Only what is not of today is compressed, when the last file begins.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		segments, err := audit.Segments(log.Dir())
		if err == nil && len(segments) == 3 && segments[0].Compressed && segments[1].Compressed {
			return poll.Success()
		}
		return poll.Continue("%v %v", segments, err)
	}, poll.WithTimeout(time.Minute))
	if !compressed {
		segments, err := audit.Segments(log.Dir())
		assert.NilError(t, err)
		for i := range segments {
			unzip(t, &segments[i])
		}
	}
	settle(t, log)
	return log, now
}

func do(t testing.TB, log *audit.Log, day, i int) {
	t.Helper()
	e := effect([]string{"create_instance", "execute_code"}[i%2])
	e.Session, e.Instance, e.RequestID = hostileSession, fmt.Sprintf("acme:s:%d-%d", day, i), fmt.Sprintf("r-%d-%d", day, i)
	if i == 3 {
		e.Tenant, e.Covers = "umbrella", []string{"create_instance", "execute_code", "destroy_instance"}
	}
	r, err := log.Begin(t.Context(), e)
	assert.NilError(t, err)
	r.Fill(func(e *audit.Effect) { e.ProviderInstance = fmt.Sprintf("p-%d", i) })
	outcome := audit.Outcome{Status: "succeeded"}
	if i == 7 {
		outcome = audit.Outcome{Status: audit.StatusError, Error: sdk.CodeUnavailable}
	}
	assert.NilError(t, r.End(outcome))
}

// settle waits until all lines are on disk.
func settle(t testing.TB, log *audit.Log) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		on, _ := log.Last()
		newest, err := audit.ParseLine(whole(t, log.Dir())[0])
		assert.NilError(t, err)
		if newest.Seq == on {
			return poll.Success()
		}
		return poll.Continue("line %d is on disk, of %d", on, newest.Seq)
	}, poll.WithTimeout(time.Minute))
}

// all pages through what a query finds.
func all(t testing.TB, a *audit.Archive, q audit.Query) (lines []json.RawMessage, pages int) {
	t.Helper()
	for {
		found, err := a.Search(t.Context(), q)
		assert.NilError(t, err)
		assert.Assert(t, len(found.Lines) <= q.Limit)
		lines = append(lines, found.Lines...)
		pages++
		if q.Before = found.Next; q.Before == "" {
			return lines, pages
		}
		assert.Assert(t, pages < 1000)
	}
}

// whole are all lines of the files, the newest first.
func whole(t testing.TB, dir string) (lines []json.RawMessage) {
	t.Helper()
	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	for _, s := range segments {
		r, err := audit.OpenReader(s.Path, s.Compressed)
		assert.NilError(t, err)
		for {
			text, err := r.Next()
			if err != nil {
				break
			}
			lines = append(lines, bytes.Clone(text))
		}
		assert.NilError(t, r.Close())
	}
	slices.Reverse(lines)
	return lines
}

func TestPagesHaveEachLineOnce(t *testing.T) {
	for _, compressed := range []bool{true, false} {
		log, _ := days(t, compressed)
		want := whole(t, log.Dir())
		for _, limit := range []int{1, 7, len(want) - 1, len(want), len(want) + 1} {
			got, pages := all(t, audit.NewArchive(log), audit.Query{Limit: limit})
			assert.DeepEqual(t, got, want)
			assert.Equal(t, pages, (len(want)+limit-1)/limit, "the last page says that it is the last")
		}
		// Who has no time gets little at a time, and all in the end.
		got, _ := all(t, audit.NewHurriedArchive(log, 0, 0), audit.Query{Limit: 500})
		assert.DeepEqual(t, got, want)
	}
}

func TestWhatIsFound(t *testing.T) {
	packed, now := days(t, true)
	plain, _ := days(t, false)
	today := now.Now().Truncate(24 * time.Hour)
	for name, test := range map[string]struct {
		query audit.Query
		lines int
	}{
		"a tenant":                     {audit.Query{Tenant: "umbrella"}, 6},
		"an operation":                 {audit.Query{Operation: "create_instance"}, 36},
		"one that is covered":          {audit.Query{Operation: "destroy_instance"}, 6},
		"an outcome":                   {audit.Query{Outcome: "error"}, 3},
		"an instance":                  {audit.Query{Instance: "acme:s:1-4"}, 2},
		"the provider's name for it":   {audit.Query{Instance: "p-4"}, 3},
		"a request":                    {audit.Query{RequestID: "r-2-9"}, 2},
		"a provider":                   {audit.Query{Provider: "p"}, 60},
		"a part of a name is no name":  {audit.Query{Provider: "p-"}, 0},
		"a text in whatever case":      {audit.Query{Text: "ACME:S:0-1"}, 2},
		"a text beyond ASCII":          {audit.Query{Text: "<B>äö"}, 60},
		"a text over lines":            {audit.Query{Text: "s\n{\"SEQ\":1"}, 60},
		"the name of a field":          {audit.Query{Text: "provider_instance"}, 0},
		"what an agent has forged":     {audit.Query{Operation: "forged"}, 0},
		"from a time on":               {audit.Query{Since: today, Tenant: "acme"}, 18},
		"up to a time":                 {audit.Query{Until: today.Add(-24 * time.Hour), Tenant: "acme"}, 18},
		"between two":                  {audit.Query{Since: today.Add(-24 * time.Hour), Until: today, Provider: "p"}, 20},
		"two conditions":               {audit.Query{Tenant: "umbrella", Outcome: "succeeded"}, 3},
		"two that exclude each other":  {audit.Query{Tenant: "umbrella", Outcome: "error"}, 0},
		"what only notes have in them": {audit.Query{Text: "the broker starts"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, log := range []*audit.Log{packed, plain} {
				for _, limit := range []int{2, 500} {
					test.query.Limit = limit
					lines, _ := all(t, audit.NewArchive(log), test.query)
					assert.Check(t, is.Equal(len(lines), test.lines))
				}
			}
		})
	}
	first, err := audit.NewArchive(plain).Search(t.Context(), audit.Query{Limit: 1})
	assert.NilError(t, err)
	var newest struct {
		Hash    string `json:"hash"`
		Session string `json:"session_id"`
	}
	assert.NilError(t, json.Unmarshal(first.Lines[0], &newest))
	assert.Equal(t, newest.Session, hostileSession)
	lines, _ := all(t, audit.NewArchive(plain), audit.Query{Text: newest.Hash, Limit: 5})
	assert.Equal(t, len(lines), 1, "a hash is found whole")
	lines, _ = all(t, audit.NewArchive(plain), audit.Query{Text: newest.Hash[:20], Limit: 5})
	assert.Equal(t, len(lines), 0)
}

func TestASearchGoesOnWhereItWas(t *testing.T) {
	log, now := days(t, false)
	a := audit.NewArchive(log)
	want := whole(t, log.Dir())
	q := audit.Query{Limit: 30}
	found, err := a.Search(t.Context(), q)
	assert.NilError(t, err)
	got := found.Lines
	now.move(24 * time.Hour)
	do(t, log, 3, 0) // what is newer changes nothing, and what is older is being compressed
	q.Before = found.Next
	rest, _ := all(t, a, q)
	assert.DeepEqual(t, append(got, rest...), want)

	for _, before := range []string{"x", "MS4x=", "MS4tMQ", "IDEuMQ", "MS4x.", strings.Repeat("A", 4000)} {
		_, err := a.Search(t.Context(), audit.Query{Limit: 1, Before: before})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest}, before)
	}
	// One that was made up finds no line that is none.
	for _, text := range []string{"MS4x", "MS4xMDA", "OTkuMA", "MTg0NDY3NDQwNzM3MDk1NTE2MTUuOTIyMzM3MjAzNjg1NDc3NTgwNw"} {
		lines, _ := all(t, a, audit.Query{Limit: 500, Before: text})
		for _, line := range lines {
			assert.Assert(t, json.Valid(line))
		}
	}
}

func TestLinesThatAreNone(t *testing.T) {
	log, _ := days(t, false)
	segments, err := audit.Segments(log.Dir())
	assert.NilError(t, err)
	text, err := os.ReadFile(segments[0].Path)
	assert.NilError(t, err)
	long := `{"operation":"` + strings.Repeat("x", 9<<20) + `"}`
	strange := "\n\r\n[1]\n\"x\"\nnull\n{\"operation\":\n{\"a\":\"\xff\"}\n" + long + "\n{\"operation\":[1],\"odd\":1}\n" + strings.Repeat("\x00", 1000) + "\n"
	assert.NilError(t, os.WriteFile(segments[0].Path, append(text, strange...), 0o600))
	lines, _ := all(t, audit.NewArchive(log), audit.Query{Limit: 500})
	assert.Equal(t, len(lines), 64+1, "those of the log, and one that somebody has written, which is JSON")
	lines, _ = all(t, audit.NewArchive(log), audit.Query{Limit: 500, Operation: "x"})
	assert.Equal(t, len(lines), 0)
}

func TestALongLineThatDoesNotEndHidesNoOther(t *testing.T) {
	log, _ := days(t, false)
	segments, err := audit.Segments(log.Dir())
	assert.NilError(t, err)
	text, err := os.ReadFile(segments[0].Path)
	assert.NilError(t, err)
	writeOver(t, segments[0].Path, append(text, strings.Repeat("x", 9<<20)...))
	lines, _ := all(t, audit.NewArchive(log), audit.Query{Limit: 500})
	assert.Equal(t, len(lines), 64)
	writeOver(t, segments[0].Path, bytes.Repeat([]byte("x"), 9<<20))
	lines, _ = all(t, audit.NewArchive(log), audit.Query{Limit: 500})
	assert.Equal(t, len(lines), 64-bytes.Count(text, []byte("\n")))
}

func TestAFileThatCannotBeDecompressedIsBroken(t *testing.T) {
	log, _ := days(t, true)
	a := audit.NewArchive(log)
	segments, err := audit.Segments(log.Dir())
	assert.NilError(t, err)
	damaged := segments[1]
	assert.Assert(t, damaged.Compressed)
	text, err := os.ReadFile(damaged.Path)
	assert.NilError(t, err)
	lines, _ := all(t, a, audit.Query{Limit: 500})
	others := 0
	for _, line := range lines {
		if !strings.Contains(string(line), damaged.Day+"T") {
			others++
		}
	}
	assert.Assert(t, others > 0 && others < len(lines))
	for name, damage := range map[string][]byte{
		"empty": nil, "a part of its header": text[:5], "its header alone": text[:10], "no gzip": []byte("no gzip at all"),
	} {
		t.Run(name, func(t *testing.T) {
			writeOver(t, damaged.Path, damage)
			found, _ := all(t, a, audit.Query{Limit: 500})
			assert.Equal(t, len(found), others)
			c, err := a.Check(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, c.State, audit.ChainBroken)
			assert.Check(t, is.Contains(c.Detail, filepath.Base(damaged.Path)+":1: changed: the file cannot be decompressed"))
			report, err := audit.Verify([]string{log.Dir()}, nil)
			assert.NilError(t, err)
			assert.Equal(t, report.Problem.Fault, audit.FaultChanged)
		})
	}
	writeOver(t, damaged.Path, text)
	c, err := a.Check(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, c.State, audit.ChainWhole)
}

func TestASearchEndsWithItsContext(t *testing.T) {
	log, _ := days(t, true)
	for range 300 {
		do(t, log, 3, 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := audit.NewArchive(log).Search(ctx, audit.Query{Limit: 500, Tenant: "nobody"})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestAChainIsChecked(t *testing.T) {
	log, now := days(t, true)
	a := audit.NewArchive(log)
	wants := func(state audit.ChainState, lines int, detail string) {
		t.Helper()
		c, err := a.Check(t.Context())
		assert.NilError(t, err)
		assert.Equal(t, c.State, state, "%s", c.Detail)
		assert.Check(t, is.Contains(c.Detail, detail))
		if lines > 0 {
			assert.Equal(t, c.Lines, lines)
		}
		assert.Assert(t, !c.Checked.IsZero())
	}
	count := len(whole(t, log.Dir()))
	wants(audit.ChainWhole, count, "")
	wants(audit.ChainWhole, count, "")
	do(t, log, 2, 5)
	settle(t, log)
	wants(audit.ChainWhole, count+2, "")
	now.move(24 * time.Hour)
	do(t, log, 3, 5) // another file begins, and the one before is compressed some time
	settle(t, log)
	wants(audit.ChainWhole, count+5, "")

	segments, err := audit.Segments(log.Dir())
	assert.NilError(t, err)
	newest := segments[len(segments)-1].Path
	text, err := os.ReadFile(newest)
	assert.NilError(t, err)
	changed := bytes.Replace(text, []byte("acme"), []byte("evil"), 1)
	writeOver(t, newest, changed)
	wants(audit.ChainBroken, count+2+1, ":2: changed: ")
	wants(audit.ChainBroken, count+2+1, ":2: changed: ")
	writeOver(t, newest, text)
	wants(audit.ChainWhole, count+5, "")
	writeOver(t, newest, text[:len(text)/2])
	wants(audit.ChainBroken, 0, "torn")
	lines := bytes.SplitAfter(text, []byte("\n"))
	writeOver(t, newest, bytes.Join(lines[:2], nil))
	wants(audit.ChainBroken, 0, fmt.Sprintf("the log has written up to number %d, and the files end with number %d", count+5, count+4))
	writeOver(t, newest, text)
	wants(audit.ChainWhole, count+5, "")

	hidden := filepath.Join(filepath.Dir(log.Dir()), "hidden")
	assert.NilError(t, os.Rename(segments[1].Path, hidden))
	wants(audit.ChainBroken, 0, "missing")
	assert.NilError(t, os.Rename(hidden, segments[1].Path))
	wants(audit.ChainWhole, count+5, "")
	assert.NilError(t, os.Rename(segments[0].Path, hidden))
	wants(audit.ChainBroken, 0, "no line says that they were removed for their age")
	assert.NilError(t, os.Rename(hidden, segments[0].Path))
	assert.NilError(t, os.WriteFile(filepath.Join(log.Dir(), "audit-x.jsonl"), nil, 0o600))
	wants(audit.ChainBroken, count+5, "misnamed")
}

// writeOver changes a file in place.
func writeOver(t testing.TB, path string, text []byte) {
	t.Helper()
	assert.NilError(t, os.WriteFile(path, text, 0o600))
}

func TestACheckGoesOnWhereItWas(t *testing.T) {
	for _, compressed := range []bool{true, false} {
		log, _ := days(t, compressed)
		for range 600 {
			do(t, log, 2, 1)
		}
		settle(t, log)
		a := audit.NewHurriedArchive(log, 0, -time.Hour)
		seen := 0
		for checks := 1; ; checks++ {
			c, err := a.Check(t.Context())
			assert.NilError(t, err)
			if c.State == audit.ChainWhole {
				assert.Equal(t, c.Lines, len(whole(t, log.Dir())))
				assert.Assert(t, checks > 1)
				break
			}
			assert.Equal(t, c.State, audit.ChainUnchecked)
			assert.Check(t, is.Contains(c.Detail, "ask again to go on"))
			assert.Assert(t, c.Lines > seen, "each check comes further")
			seen = c.Lines
		}
	}
}

func TestFilesThatWereRemovedForTheirAgeAreNotMissing(t *testing.T) {
	log, now := days(t, true)
	a := audit.NewArchive(log)
	c, err := a.Check(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, c.State, audit.ChainWhole)
	log.Change(audit.Detail{KeepDays: 2})
	now.move(24 * time.Hour)
	do(t, log, 3, 0)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if segments, err := audit.Segments(log.Dir()); err != nil || len(segments) != 3 || segments[1].Day < "2026-03-03" {
			return poll.Continue("%v %v", segments, err)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	settle(t, log)
	c, err = a.Check(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, c.State, audit.ChainWhole, c.Detail)
	assert.Equal(t, c.Lines, len(whole(t, log.Dir())))
	report, err := audit.Verify([]string{log.Dir()}, nil)
	assert.NilError(t, err)
	assert.Equal(t, report.Lines, c.Lines)
}
