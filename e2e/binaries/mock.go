package binaries

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	return Build(to, "github.com/sandbox-broker/sandbox-broker/e2e/"+program)
}

// Build is go build of a program with arguments, with the race detector where Racing.
func Build(to string, args ...string) error {
	flags := []string{"build", "-o", to}
	if Racing() {
		flags = append(flags, "-race")
	}
	if out, err := exec.Command("go", append(flags, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", filepath.Base(to), err, out)
	}
	return nil
}

// Racing reports whether the broker and the plugins run with the race detector. Some parts of `make
// test-all` do.
func Racing() bool { return os.Getenv("SANDBOX_BROKER_RACE") != "" }

// CheckRaces fails the test for each data race that a log of a broker and its plugins tells of.
func CheckRaces(t testing.TB, log string) {
	t.Helper()
	const begin = "WARNING: DATA RACE"
	for _, race := range strings.Split(log, begin)[1:] {
		t.Errorf("%s%.6000s", begin, race)
	}
}
