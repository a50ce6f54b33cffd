package binaries

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// BuildMock builds the mock provider, for a TestMain, into a directory of its own
// that remove takes away. It returns the path of the executable.
func BuildMock() (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mock")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "mock")
	if err := build(path, "mockprovider"); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return path, func() { _ = os.RemoveAll(dir) }, nil
}

// BuildCloud builds the plugin of the cloud that package chaos/cloud is, and returns the
// path of the executable.
func BuildCloud(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cloud")
	assert.NilError(t, build(path, "chaos/cloudplugin"))
	return path
}

// build builds a program of the tests, which is below e2e.
func build(to, program string) error {
	if out, err := exec.Command("go", "build", "-o", to, "github.com/sandbox-broker/sandbox-broker/e2e/"+program).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", program, err, out)
	}
	return nil
}
