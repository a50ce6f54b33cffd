package bash_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/program/bash"
)

func run(t *testing.T, script string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	out, err := command.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return string(out)
}

func TestAVariableIsWhatItWas(t *testing.T) {
	for name, value := range map[string]string{
		"nothing":           "",
		"quotes":            `it's "quoted"`,
		"an expansion":      "$HOME `id` $(id) !x",
		"a line end":        "a\nb\n",
		"a backslash":       `a\nb\`,
		"a quote escaped":   `\'; echo forged; '`,
		"a carriage return": "a\rb",
		"text of the world": "世界 🎉",
		"not UTF-8":         "\xff\xfe",
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, run(t, bash.Script(map[string]string{"X": value}, `printf %s "$X"`)), value)
			assert.Equal(t, strings.Count(bash.Quote(value), "\n"), 0)
		})
	}
}

func TestVariablesDoNotMoveTheLinesOfTheCode(t *testing.T) {
	assert.Equal(t, run(t, bash.Script(map[string]string{"A": "1\n2", "B": "3"}, "#!/bin/bash\necho $LINENO")), "2\n")
}

// outcome is what a script comes to, run as a file of one name.
func outcome(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "code.sh"), []byte(script), 0o600))
	command := exec.CommandContext(t.Context(), "bash", "code.sh")
	command.Dir = dir
	out, err := command.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		assert.NilError(t, err, "%s", out)
	}
	return fmt.Sprintf("%s(exit code %d)", out, command.ProcessState.ExitCode())
}

func TestCodeDoesTheSameBehindVariables(t *testing.T) {
	for name, code := range map[string]string{
		"nothing":                        "",
		"a comment alone":                "# nothing",
		"the status that it begins with": "echo $?",
		"its last status":                "(exit 4)",
		"an exit":                        "echo a\nexit 3\necho b",
		"a bare exit":                    "exit",
		"a failure after set -e":         "set -e\nfalse\necho b",
		"an unset variable":              "set -u\necho 1\necho $nosuch\necho 2",
		"a missing command":              "true\nnosuch\necho $LINENO",
		"a trap of errors":               "trap 'echo failed in $LINENO' ERR\nfalse",
		"a trap of the end":              "trap 'echo end $?' EXIT\n(exit 5)",
		"a here-document":                "cat <<EOF; echo $LINENO\nit's \"$LINENO\" \\$x\nEOF\necho $LINENO",
		"a here-document without end":    "echo a\ncat <<EOF\nb",
		"a function":                     "f() {\n  echo $FUNCNAME $LINENO $#\n  return 2\n}\nf a b",
		"a return from nothing":          "return 3\necho $?",
		"an alias":                       "shopt -s expand_aliases extglob\nalias x='echo aliased'\nx\necho !(code).sh",
		"its name and arguments":         "echo $0 $# $- ${BASH_SOURCE[0]}",
		"a shebang":                      "#!/bin/sh -e\nfalse\necho $LINENO",
		"lines with carriage returns":    "echo a\r\necho b\r\n",
		"what begins like an option":     "-n",
		"a loop over standard input":     "while read x; do echo $x; done <<<a\ncat",
		"what is shown as it is read":    "set -v\necho a\nfalse | true",
		"text of the world":              "echo 世界 $'\\xff'",
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, outcome(t, bash.Script(map[string]string{"K": "v\n'", "UID": "5"}, code)), outcome(t, code))
		})
	}
}

func TestSyntaxErrorsDoNotShowVariables(t *testing.T) {
	for name, code := range map[string]string{
		"on the first line":           "if then (",
		"behind a command":            "echo a; fi",
		"on the second line":          "true\nif then (",
		"of what is read at run time": "eval 'if then ('",
		"at the end":                  "echo 'a",
		"of a missing end":            "if true; then",
	} {
		t.Run(name, func(t *testing.T) {
			got := outcome(t, bash.Script(map[string]string{"K": "secret"}, code))
			assert.Check(t, !strings.Contains(got, "secret") && !strings.Contains(got, "export"), "%s", got)
			assert.Equal(t, strings.ReplaceAll(got, "eval: ", ""), strings.ReplaceAll(outcome(t, code), "eval: ", ""))
		})
	}
}

func TestVariablesThatCannotBeSetAreLeftOut(t *testing.T) {
	assert.Equal(t, run(t, bash.Script(map[string]string{"UID": "5", "a b": "1", "x;echo forged": "1", "": "1"}, "echo hi")), "hi\n")
}

func FuzzQuote(f *testing.F) {
	for _, seed := range []string{"", "a", `\`, "'", "\n", `\'`, "$x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.Contains(value, "\x00") {
			t.Skip("no variable has a NUL")
		}
		assert.Equal(t, run(t, "printf %s "+bash.Quote(value)), value)
	})
}
