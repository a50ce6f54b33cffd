package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// events are lines of go test -json, as "ACTION TEST [OUTPUT]".
func events(t *testing.T, dir, part string, lines ...string) {
	t.Helper()
	var b bytes.Buffer
	for _, line := range lines {
		fields := strings.SplitN(line, " ", 3)
		for len(fields) < 3 {
			fields = append(fields, "")
		}
		fmt.Fprintf(&b, "{\"Action\":%q,\"Package\":\"github.com/sandbox-broker/sandbox-broker/p\",\"Test\":%q,\"Output\":%q}\n", fields[0], fields[1], fields[2])
	}
	assert.NilError(t, os.WriteFile(filepath.Join(dir, part+".json"), b.Bytes(), 0o600))
}

func TestTheEndOfARunSaysWhatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		green bool
		want  []string
		lacks string
	}{
		"green":             {[]string{"run TestA", "pass TestA", "pass "}, true, []string{"1 passed, 0 failed, 0 skipped"}, "FAILED"},
		"a failure":         {[]string{"run TestA", "output TestA === RUN TestA", "output TestA a_test.go:1: no", "fail TestA", "run TestB", "pass TestB", "fail "}, false, []string{"FAILED p TestA\n  a_test.go:1: no", "1 passed, 1 failed, 0 skipped"}, "FAILED p\n"},
		"a subtest":         {[]string{"run TestA", "run TestA/x", "output TestA/x why", "fail TestA/x", "fail TestA", "run TestB", "pass TestB", "fail "}, false, []string{"FAILED p TestA/x\n  why", "1 passed, 2 failed"}, "FAILED p TestA\n"},
		"a flake":           {[]string{"run TestA", "output TestA why", "fail TestA", "fail ", "run TestA", "pass TestA", "pass "}, true, []string{"FLAKE p TestA\n  why", "1 passed, 0 failed"}, "FAILED"},
		"a skip":            {[]string{"run TestA", "output TestA no root", "skip TestA", "run TestB", "pass TestB", "pass "}, true, []string{"1  no root", "1 passed, 0 failed, 1 skipped"}, "FAILED"},
		"another skip":      {[]string{"run TestA", "output TestA     a_test.go:7: no engine", "skip TestA", "run TestB", "pass TestB", "pass "}, false, []string{"!    1  no engine", ".ci/skips"}, "a_test.go"},
		"it does not end":   {[]string{"run TestA", "run TestB", "pass TestB", "fail "}, false, []string{"FAILED p TestA\n  it did not end"}, "FLAKE"},
		"it does not build": {[]string{"run TestB", "pass TestB", "output  undefined: x", "fail "}, false, []string{"FAILED p\n  undefined: x"}, "FLAKE"},
		"no test":           {[]string{"pass "}, false, []string{"part one: no test passed"}, "FLAKE"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			events(t, dir, "one", c.lines...)
			var out bytes.Buffer
			green, err := report(&out, dir, []string{"no root"})
			assert.NilError(t, err)
			assert.Equal(t, green, c.green, "%s", &out)
			for _, want := range c.want {
				assert.Check(t, is.Contains(out.String(), want))
			}
			assert.Check(t, !strings.Contains(out.String(), c.lacks), "%s", &out)
		})
	}
	_, err := report(&bytes.Buffer{}, t.TempDir(), nil)
	assert.ErrorContains(t, err, "no events")
}

// statusOf runs a shell script in the directory of the wrappers.
func statusOf(t *testing.T, script string, args ...string) (status int, out string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", append([]string{"-c", script, "test"}, args...)...)
	command.Dir = "../../.ci"
	text, err := command.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(text)
	}
	assert.NilError(t, err, "%s", text)
	return 0, string(text)
}

func TestAWrapperKeepsTheStatusOfItsCommand(t *testing.T) {
	for _, status := range []int{0, 7} {
		t.Run(fmt.Sprintf("status %d, and a process that goes on to write", status), func(t *testing.T) {
			got, out := statusOf(t, `set -euo pipefail
. ./cleanup
dir=$(mktemp -d) pid=
trap 'end_server TERM $?' EXIT
(i=0; while mkdir -p "$dir/$i" && [ $i -lt 500 ]; do i=$((i+1)); done) 2>/dev/null &
exit "$1"`, fmt.Sprint(status))
			assert.Equal(t, got, status, "%s", out)
		})
		t.Run(fmt.Sprintf("status %d, and what cannot be removed", status), func(t *testing.T) {
			got, out := statusOf(t, `set -euo pipefail
. ./cleanup
rm() { return 1; }; sleep() { :; }; umount() { return 1; }
dir=$(mktemp -d) pid=
trap 'end_server TERM $?; ' EXIT
exit "$1"`, fmt.Sprint(status))
			assert.Equal(t, got, status, "%s", out)
			assert.Check(t, is.Contains(out, "left behind: "))
			_, dir, _ := strings.Cut(strings.TrimSpace(out), "left behind: ")
			assert.NilError(t, os.Remove(dir))
		})
		t.Run(fmt.Sprintf("status %d of a command beside PostgreSQL", status), func(t *testing.T) {
			if os.Getenv("CI") == "" {
				if found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); err != nil || len(found) == 0 {
					t.Skip("it needs PostgreSQL")
				}
			}
			got, out := statusOf(t, `./with-postgres sh -c 'exit '"$1"`, fmt.Sprint(status))
			assert.Equal(t, got, status, "%s", out)
		})
	}
}
