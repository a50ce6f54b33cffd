package guest

import (
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// Both sides compare their versions, whichever way each was built.
func TestTheVersionDoesNotDependOnTheBuild(t *testing.T) {
	for _, flag := range []string{"-buildvcs=false", "-buildvcs=auto"} {
		program := filepath.Join(t.TempDir(), "version")
		out, err := exec.Command("go", "build", flag, "-o", program, "./testdata/version").CombinedOutput()
		assert.NilError(t, err, "%s", out)
		out, err = exec.Command(program).Output()
		assert.NilError(t, err)
		assert.Equal(t, string(out), Version())
	}
}
