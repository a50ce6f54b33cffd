package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"
)

var root = filepath.Join("..", "..")

// A package that is in no part would not run, and one in two would run twice. A test that the
// patterns of its part leave out must be in a variant.
func TestEachTestIsInOnePart(t *testing.T) {
	t.Parallel()
	parts, err := readParts(filepath.Join(root, ".ci", "parts.hcl"))
	assert.NilError(t, err)
	packages, err := testPackages(t.Context(), root)
	assert.NilError(t, err)
	ran, ranInVariant := map[string]int{}, map[string]bool{}
	for _, u := range units(parts, packages, false) {
		if u.Fuzz || u.Module != "" {
			continue
		}
		assert.Check(t, len(u.packages) > 0, "part %s has no package", u.name)
		for _, pkg := range u.packages {
			for _, test := range pkg.tests {
				switch name := pkg.path + " " + test; {
				case !u.selects(test):
				case u.Variant == "":
					ran[name]++
				default:
					ranInVariant[name] = true
				}
			}
		}
	}
	for _, pkg := range packages {
		for _, test := range pkg.tests {
			name := pkg.path + " " + test
			assert.Check(t, ran[name] == 1 || ran[name] == 0 && ranInVariant[name], "%s is in %d parts; .ci/parts.hcl lists them", name, ran[name])
		}
	}
}

func TestAListOfPartsIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, says string }{
		"a field that there is not": {`part "a" { tests = "x" }`, "purpose"},
		"a gate that there is not":  {"part \"a\" {\n purpose = \"x\"\n packages = [\"./a\"]\n gate = \"long\"\n}", "gate must be short or whole"},
		"another wrapper":           {"part \"a\" {\n purpose = \"x\"\n packages = [\"./a\"]\n with = \"oracle\"\n}", "with must be"},
		"no packages":               {"part \"a\" {\n purpose = \"x\"\n}", "has packages"},
		"a bad pattern":             {"part \"a\" {\n purpose = \"x\"\n packages = [\"./a\"]\n tests = \"(\"\n}", "missing closing"},
		"a name twice":              {strings.Repeat("part \"a\" {\n purpose = \"x\"\n packages = [\"./a\"]\n}\n", 2), "two parts"},
		"fuzzing in the gate":       {"part \"a\" {\n purpose = \"x\"\n packages = [\"./a\"]\n fuzz = true\n gate = \"short\"\n}", "neither fuzzing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "parts.hcl")
			assert.NilError(t, os.WriteFile(file, []byte(test.text), 0o600))
			_, err := readParts(file)
			assert.ErrorContains(t, err, test.says)
		})
	}
}

func TestShardsHaveEachTestOnce(t *testing.T) {
	t.Parallel()
	packages := []testPackage{
		{path: "./a", tests: []string{"TestA", "TestB", "TestC", "TestLeftOut"}, fuzz: []string{"FuzzA"}},
		{path: "./b", tests: []string{"TestD", "TestE"}, fuzz: []string{"FuzzB", "FuzzC"}},
		{path: "./c", tests: []string{"TestNot"}},
	}
	p := part{Name: "p", Packages: []string{"./a", "./b"}, Skip: "LeftOut", Shards: 2}
	var names, tests []string
	for _, u := range units([]part{p}, packages, false) {
		names = append(names, u.name+" "+u.run)
		for _, pkg := range u.packages {
			tests = append(tests, pkg.tests...)
		}
	}
	assert.DeepEqual(t, names, []string{"p-1 ^(TestB|TestE)$", "p-2 ^(TestA|TestC|TestD)$"})
	slices.Sort(tests)
	assert.DeepEqual(t, tests, []string{"TestA", "TestB", "TestC", "TestD", "TestE"})
	p.Fuzz = true
	var targets []string
	for _, u := range units([]part{p}, packages, false) {
		for _, pkg := range u.packages {
			targets = append(targets, pkg.fuzz...)
		}
	}
	slices.Sort(targets)
	assert.DeepEqual(t, targets, []string{"FuzzA", "FuzzB", "FuzzC"})
	assert.Check(t, is.Len(units([]part{p}, packages, true), 0), "it has no gate")
}

func TestATestThatDidNotRunIsNamed(t *testing.T) {
	t.Parallel()
	u := unit{part: part{Skip: "Not"}, packages: []testPackage{{path: "./p", tests: []string{"TestA", "TestB", "TestNot"}}}}
	assert.NilError(t, unseen(u, []*outcome{{name: "p TestA"}, {name: "p TestB"}}))
	assert.ErrorContains(t, unseen(u, []*outcome{{name: "p TestA"}, {name: "p TestA/TestB"}}), "did not run:\n  p TestB")
}

// A test that hangs prints where, and the command ends.
func TestWhatHangsPrintsItsStacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module hang\ngo 1.24\n",
		"hang_test.go": "package hang\nimport (\"os\"; \"testing\")\nfunc TestHang(t *testing.T) { _ = os.WriteFile(\"begun\", nil, 0o600); hangHere() }\nfunc hangHere() { select {} }\n",
	} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	tooLong := errors.New("it took too long")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var out bytes.Buffer
	r := &job{runner: &runner{root: dir}, out: &out}
	ended := make(chan error, 1)
	go func() { ended <- r.exec(ctx, dir, []string{"go", "test", "-vet=off", "."}) }()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if _, err := os.Stat(filepath.Join(dir, "begun")); err != nil {
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	cancel(tooLong)
	err := <-ended
	assert.Check(t, errors.Is(err, tooLong), "%v: %s", err, &out)
	assert.Check(t, is.Contains(out.String(), "hang.hangHere"))
}

func TestAPartIsInputsAndPrograms(t *testing.T) {
	t.Parallel()
	inputs := map[string]bool{"go.mod": true, "broker/api": true}
	for file, want := range map[string]bool{
		"go.mod": true, "broker/api/a.go": true, "broker/api/testdata/x/y.json": true, "broker/a.go": false, "docs/api.md": false,
	} {
		assert.Check(t, is.Equal(isInput(file, inputs), want), file)
	}
}

func TestRecordsAreKept(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	_, ok, err := lastGreen("corpus")
	assert.NilError(t, err)
	assert.Check(t, !ok)
	rec := record{Commit: "c", Tree: "t", Seconds: 1.5, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	assert.NilError(t, rec.keep("corpus"))
	kept, ok, err := lastGreen("corpus")
	assert.NilError(t, err)
	assert.Check(t, ok)
	assert.DeepEqual(t, kept, rec)
}
