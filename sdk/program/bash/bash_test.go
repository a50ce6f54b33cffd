package bash_test

import (
	"os/exec"
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
