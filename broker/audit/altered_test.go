package audit_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
)

// once makes a log with one effect in it.
func once(t *testing.T) (dir, path string) {
	t.Helper()
	dir = newDir(t)
	log := open(t, audit.Options{Dir: dir})
	r, err := log.Begin(t.Context(), effect("create"))
	assert.NilError(t, err)
	assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	shut(t, log)
	return dir, only(t, dir)
}

func utf16Of(text []byte) []byte {
	var out []byte
	for _, u := range utf16.Encode([]rune("\ufeff" + string(text))) {
		out = append(out, byte(u), byte(u>>8))
	}
	return out
}

// A file that was changed as a whole is no torn line, whatever was done to it.
func TestAFileThatWasChangedAsAWholeStaysAsItIs(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"all zeros":       func(text []byte) []byte { return make([]byte, len(text)) },
		"other line ends": func(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")) },
		"other line ends from the second line on": func(text []byte) []byte {
			first, rest, _ := bytes.Cut(text, []byte("\n"))
			return append(append(first, '\n'), bytes.ReplaceAll(rest, []byte("\n"), []byte("\r\n"))...)
		},
		"old line ends":     func(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\n"), []byte("\r")) },
		"UTF-16":            utf16Of,
		"a byte order mark": func(text []byte) []byte { return append([]byte("\ufeff"), text...) },
		"emptied":           func([]byte) []byte { return nil },
		"compressed in place": func(text []byte) []byte {
			var out bytes.Buffer
			zip := gzip.NewWriter(&out)
			_, _ = zip.Write(text)
			_ = zip.Close()
			return out.Bytes()
		},
		"only half of its first line": func(text []byte) []byte { return text[:40] },
		"something else":              func([]byte) []byte { return []byte("nothing to see\n") },
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := once(t)
			edit(t, path, change)
			changed, err := os.ReadFile(path)
			assert.NilError(t, err)
			report, err := audit.Verify([]string{dir}, nil)
			assert.NilError(t, err)
			assert.Check(t, !report.OK, "before the start")

			said := &bytes.Buffer{}
			log := open(t, audit.Options{Dir: dir, Logger: hclog.New(&hclog.LoggerOptions{Output: said})})
			r, err := log.Begin(t.Context(), effect("create"))
			assert.NilError(t, err)
			assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
			shut(t, log)
			assert.Check(t, is.Contains(said.String(), "[ERROR] a file of the audit log was changed; another begins"))
			after, err := os.ReadFile(path)
			assert.NilError(t, err)
			assert.Check(t, bytes.Equal(after, changed), "it is as it was")
			left, err := filepath.Glob(filepath.Join(dir, "*.torn-*"))
			assert.NilError(t, err)
			assert.Check(t, is.Len(left, 0))
			segments, err := audit.Segments(dir)
			assert.NilError(t, err)
			assert.Assert(t, is.Len(segments, 2))
			lines := linesIn(t, segments[1])
			assert.Check(t, is.Contains(lines[0].Note, "the file before was changed"))
			assert.Check(t, lines[0].Seq > 1, "no number is given twice")
			report, err = audit.Verify([]string{dir}, nil)
			assert.NilError(t, err)
			assert.Check(t, !report.OK, "after the start")
		})
	}
}

func TestANewestFileThatIsGoneIsMissed(t *testing.T) {
	dir, path := once(t)
	assert.NilError(t, os.Rename(path, filepath.Join(dir, "elsewhere")))
	said := &bytes.Buffer{}
	shut(t, open(t, audit.Options{Dir: dir, Logger: hclog.New(&hclog.LoggerOptions{Output: said})}))
	assert.Check(t, is.Contains(said.String(), "[ERROR] the newest file of the audit log was removed; another begins"))
	lines := linesOf(t, dir)
	assert.Check(t, is.Contains(lines[0].Note, "the newest file was removed"))
	assert.Equal(t, lines[0].Seq, uint64(2), "no number is given twice")
	report, err := audit.Verify([]string{dir}, nil)
	assert.NilError(t, err)
	assert.Check(t, !report.OK)
}

func TestVerifyPassesNoFileUnderAnotherName(t *testing.T) {
	for name, test := range map[string]struct {
		of     int
		to     func(name string) string
		copied bool
		fault  audit.Fault
		detail string
	}{
		"the last number lacks zeros":  {of: 1, to: func(name string) string { return strings.Replace(name, "-0000000", "-", 1) }, fault: audit.FaultMisnamed, detail: "12 digits"},
		"the last number has too many": {of: 1, to: func(name string) string { return strings.Replace(name, "-0000000", "-00000000", 1) }, fault: audit.FaultMisnamed, detail: "would call it"},
		"the last has another number":  {of: 1, to: func(name string) string { return strings.Replace(name, ".jsonl", "0.jsonl", 1) }, fault: audit.FaultMisnamed, detail: "its first line is number"},
		"the last has another ending":  {of: 1, to: func(name string) string { return name + ".bak" }, fault: audit.FaultMisnamed, detail: "is not read"},
		"the last is away":             {of: 1, to: func(string) string { return "x" }, fault: audit.FaultMissing, detail: "newest file is not there"},
		"the first number lacks zeros": {of: 0, to: func(name string) string { return strings.Replace(name, "-0000000", "-", 1) }, fault: audit.FaultMissing, detail: "those before it are not there"},
		"two have one number":          {of: 0, copied: true, to: func(name string) string { return strings.Replace(name, "-01-", "-02-", 1) }, fault: audit.FaultReordered, detail: "it is number 1 and comes after"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, segments := written(t)
			path := segments[test.of].Path
			to := filepath.Join(dir, test.to(filepath.Base(path)))
			assert.Assert(t, to != path)
			if test.copied {
				text, err := os.ReadFile(path)
				assert.NilError(t, err)
				assert.NilError(t, os.WriteFile(to, text, 0o600))
			} else {
				assert.NilError(t, os.Rename(path, to))
			}
			report, err := audit.Verify([]string{dir}, nil)
			assert.NilError(t, err)
			assert.Assert(t, !report.OK)
			assert.Equal(t, report.Problem.Fault, test.fault, "%v", report.Problem)
			assert.Check(t, is.Contains(report.Problem.Detail, test.detail))
		})
	}
}

// What a broker leaves beside its files is none of them.
func TestVerifyMindsNothingElseInTheDirectory(t *testing.T) {
	dir, segments := written(t)
	for _, name := range []string{"lock", "cursor-syslog", "README", segments[1].Path[len(dir)+1:] + ".torn-17", segments[0].Path[len(dir)+1:] + ".gz.part"} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	intact(t, dir)
}
