package audit_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
)

// written makes a log of two days, with ten effects on each.
func written(t testing.TB) (dir string, segments []audit.Segment) {
	t.Helper()
	dir, now := newDir(t), newClock()
	log := open(t, audit.Options{Dir: dir, Now: now.Now})
	for day := range 2 {
		now.move(time.Duration(day) * 24 * time.Hour)
		for range 10 {
			r, err := log.Begin(t.Context(), effect("create"))
			assert.NilError(t, err)
			assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
		}
	}
	shut(t, log)
	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	assert.Equal(t, len(segments), 2)
	unzip(t, &segments[0]) // so that it can be changed
	return dir, segments
}

// unzip puts a file that may be compressed back as it was.
func unzip(t testing.TB, s *audit.Segment) {
	t.Helper()
	if !s.Compressed {
		return
	}
	file, err := os.Open(s.Path)
	assert.NilError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	assert.NilError(t, err)
	text, err := io.ReadAll(unzipped)
	assert.NilError(t, err)
	assert.NilError(t, os.Remove(s.Path))
	s.Path, s.Compressed = strings.TrimSuffix(s.Path, ".gz"), false
	assert.NilError(t, os.WriteFile(s.Path, text, 0o600))
}

func TestVerifyNamesTheFirstLineThatDoesNotFit(t *testing.T) {
	swap := func(lines [][]byte, i, j int) [][]byte {
		lines[i], lines[j] = lines[j], lines[i]
		return lines
	}
	for name, test := range map[string]struct {
		file  int
		edit  func(lines [][]byte) [][]byte
		fault audit.Fault
		line  int
	}{
		"a byte is changed": {0, func(l [][]byte) [][]byte {
			l[4] = bytes.Replace(l[4], []byte("acme"), []byte("evil"), 1)
			return l
		}, audit.FaultChanged, 5},
		"a hash is changed": {0, func(l [][]byte) [][]byte {
			l[4][len(l[4])-4] ^= 1
			return l
		}, audit.FaultChanged, 5},
		"a line is written anew, with its hash": {0, func(l [][]byte) [][]byte {
			parsed, _ := audit.ParseLine(l[4][:len(l[4])-1])
			l[4] = audit.Seal(parsed.Seq, parsed.Prev, []byte(`{"event":"begin","effect_id":"forged"}`))
			return l
		}, audit.FaultChanged, 6},
		"a line is removed":                 {0, func(l [][]byte) [][]byte { return slices.Delete(l, 4, 5) }, audit.FaultMissing, 5},
		"the last line of a day is removed": {0, func(l [][]byte) [][]byte { return l[:len(l)-1] }, audit.FaultMissing, 1},
		"two lines change places":           {0, func(l [][]byte) [][]byte { return swap(l, 4, 5) }, audit.FaultMissing, 5},
		"a line stands twice":               {0, func(l [][]byte) [][]byte { return slices.Insert(l, 5, l[4]) }, audit.FaultReordered, 6},
		"the last line is torn": {1, func(l [][]byte) [][]byte {
			l[len(l)-1] = l[len(l)-1][:40]
			return l
		}, audit.FaultTorn, 22},
		"an empty line": {0, func(l [][]byte) [][]byte { return slices.Insert(l, 5, []byte("\n")) }, audit.FaultChanged, 6},
		"the first line names another": {0, func(l [][]byte) [][]byte {
			l[0] = audit.Seal(1, audit.Hash{1}, []byte(`{"event":"file"}`))
			return l
		}, audit.FaultChanged, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir, segments := written(t)
			edit(t, segments[test.file].Path, func(text []byte) []byte {
				return bytes.Join(test.edit(slices.Collect(bytes.Lines(text))), nil)
			})
			report, err := audit.Verify([]string{dir}, nil)
			assert.NilError(t, err)
			assert.Assert(t, report.Problem != nil)
			assert.Equal(t, report.Problem.Fault, test.fault, "%v", report.Problem)
			assert.Equal(t, report.Problem.Line, test.line, "%v", report.Problem)
		})
	}
}

func TestVerifyTakesFilesInAnyOrder(t *testing.T) {
	_, segments := written(t)
	report, err := audit.Verify([]string{segments[1].Path, segments[0].Path}, nil)
	assert.NilError(t, err)
	assert.Assert(t, report.OK, "%v", report.Problem)
	assert.Equal(t, report.Effects, 20)

	later, err := audit.Verify([]string{segments[1].Path}, nil)
	assert.NilError(t, err)
	assert.Assert(t, later.OK, "%v", later.Problem)
	assert.Equal(t, later.Effects, 10)
	assert.Equal(t, later.LastHash, report.LastHash)
	assert.Check(t, later.Before != "", "what it follows on is taken on trust, which is told")
}

func TestAHashThatWasKeptProvesThatTheLogIsTheSame(t *testing.T) {
	dir, segments := written(t)
	kept, err := audit.ParseHash(intact(t, dir).LastHash)
	assert.NilError(t, err)
	report, err := audit.Verify([]string{dir}, &kept)
	assert.NilError(t, err)
	assert.Assert(t, report.OK && *report.Expected)

	// Cutting lines off at the end leaves a chain that is good in itself.
	edit(t, segments[1].Path, func(text []byte) []byte {
		lines := slices.Collect(bytes.Lines(text))
		return bytes.Join(lines[:len(lines)-2], nil)
	})
	intact(t, dir)
	report, err = audit.Verify([]string{dir}, &kept)
	assert.NilError(t, err)
	assert.Assert(t, !report.OK && !*report.Expected)
}

func TestThereMustBeSomethingToVerify(t *testing.T) {
	_, err := audit.Verify([]string{t.TempDir()}, nil)
	assert.ErrorContains(t, err, "no files")
	_, err = audit.Verify([]string{t.TempDir() + "/none"}, nil)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// Whatever a file holds, reading it does no harm, and what counts as a line is what
// the log itself would write.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"seq":1,"prev":"`))
	f.Add(bytes.TrimSuffix(audit.Seal(7, audit.Hash{1}, []byte(`{"event":"begin","effect_id":"x"}`)), []byte("\n")))
	f.Add(bytes.TrimSuffix(audit.Seal(1, audit.Hash{}, []byte(`{"open":["a","b"]}`)), []byte("\n")))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := audit.ParseLine(text)
		if err != nil {
			return
		}
		if bytes.ContainsRune(text, '\n') {
			return // the reader never gives such
		}
		content := text[bytes.Index(text, []byte(`",`))+1 : bytes.LastIndex(text, []byte(`,"hash":"`))]
		again := audit.Seal(l.Seq, l.Prev, append(append([]byte("{"), content[1:]...), '}'))
		assert.Equal(t, string(bytes.TrimSuffix(again, []byte("\n"))), string(text))
	})
}

func FuzzVerify(f *testing.F) {
	f.Add([]byte("garbage\n"), false)
	f.Add(audit.Seal(1, audit.Hash{}, []byte(`{"event":"file"}`)), false)
	f.Add([]byte{0x1f, 0x8b, 8, 0}, true)
	f.Fuzz(func(t *testing.T, text []byte, compressed bool) {
		name := "audit-2026-03-01-000000000001.jsonl"
		if compressed {
			name += ".gz"
		}
		path := t.TempDir() + "/" + name
		assert.NilError(t, os.WriteFile(path, text, 0o600))
		report, err := audit.Verify([]string{path}, nil)
		if err == nil && report.OK && report.Lines != countLines(text) && !compressed {
			t.Fatalf("%d lines are good of %d", report.Lines, countLines(text))
		}
	})
}
