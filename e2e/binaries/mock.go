package binaries

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildMock builds the mock provider, for a TestMain, into a directory of its own
// that remove takes away. It returns the path of the executable.
func BuildMock() (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mock")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "mock")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/sandbox-broker/sandbox-broker/e2e/mockprovider").CombinedOutput(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("build the mock provider: %w: %s", err, out), os.RemoveAll(dir))
	}
	return path, func() { _ = os.RemoveAll(dir) }, nil
}
