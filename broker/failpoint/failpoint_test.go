package failpoint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
)

// TestAReleaseHasNoFailPoints looks for the name of the variable in both builds of a
// program that comes by one.
func TestAReleaseHasNoFailPoints(t *testing.T) {
	for tag, want := range map[string]bool{"": false, "failpoints": true} {
		out := filepath.Join(t.TempDir(), "program")
		text, err := exec.Command("go", "build", "-tags", tag, "-o", out, "./testdata/passes").CombinedOutput()
		assert.NilError(t, err, "%s", text)
		program, err := os.ReadFile(out)
		assert.NilError(t, err)
		assert.Equal(t, strings.Contains(string(program), failpoint.Environment), want, "with the tag %q", tag)
		for points, killed := range map[string]bool{
			"": false, "create.made=kill:2": want, "create.made=kill:4": false, "create.made=delay:1ms": false, "key.kept=kill:1": false,
		} {
			run := exec.Command(out)
			run.Env = []string{failpoint.Environment + "=" + points}
			text, err := run.CombinedOutput()
			status, _ := run.ProcessState.Sys().(syscall.WaitStatus)
			assert.Equal(t, status.Signaled() && status.Signal() == syscall.SIGKILL, killed, "%q with the tag %q: %v %s", points, tag, err, text)
		}
		for _, wrong := range []string{"no.such=kill:1", "create.made=kill:x", "create.made=explode"} {
			run := exec.Command(out)
			run.Env = []string{failpoint.Environment + "=" + wrong}
			assert.Equal(t, run.Run() != nil, want, "%q is refused", wrong)
		}
	}
}
