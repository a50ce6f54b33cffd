package main

import (
	"os"
	"os/exec"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// asPrewarmer has the test's own program be the command.
const asPrewarmer = "TEST_AS_PREWARMER"

func TestMain(m *testing.M) {
	if os.Getenv(asPrewarmer) != "" {
		main()
	}
	os.Exit(m.Run())
}

func prewarm(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{asPrewarmer + "=1"}
	return cmd
}

func TestTheProgramHasALargeTableAndNothingInIt(t *testing.T) {
	out, err := prewarm("/bin/sh", "a name", "-c", `echo "$0"; exec grep FDSize /proc/self/status`).Output()
	assert.NilError(t, err)
	assert.Equal(t, string(out), "a name\nFDSize:\t256\n")

	bare, err := exec.Command("/bin/ls", "/proc/self/fd").Output()
	assert.NilError(t, err)
	out, err = prewarm("/bin/ls", "ls", "/proc/self/fd").Output()
	assert.NilError(t, err)
	assert.Equal(t, string(out), string(bare))
}

func TestItSaysWhatItCannotDo(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no program":                  {nil, "usage:"},
		"a program that is not there": {[]string{"/nowhere", "x"}, "execute /nowhere: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := prewarm(c.args...).CombinedOutput()
			assert.ErrorContains(t, err, "exit status")
			assert.Check(t, is.Contains(string(out), c.says))
		})
	}
}
