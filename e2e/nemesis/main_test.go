package nemesis_test

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "of all that is drawn; 0 for another one each time")
	faultsFlag = flag.Int("faults", 0, "how often the nemesis does harm; 0 for a short run")
	// figuresFlag has figures measured.
	figuresFlag = flag.Bool("figures", false, "measure brokers on a file and on a database")
)

// built are the executables, built once: the broker with its fail points, for what it does every
// minute is to be done more often, and with a clock that can be ahead.
var built struct{ broker, plugin string }

func buildAll(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	built.broker, built.plugin = filepath.Join(dir, "sandbox-broker"), filepath.Join(dir, "cloud")
	overlay, err := skewable(dir)
	assert.NilError(t, err)
	const module = "github.com/sandbox-broker/sandbox-broker/"
	assert.NilError(t, build(built.broker, "-overlay", overlay, "-tags", "failpoints", module+"cmd/sandbox-broker"))
	assert.NilError(t, build(built.plugin, module+"e2e/chaos/cloudplugin"))
}

func build(to string, args ...string) error {
	if out, err := exec.Command("go", append([]string{"build", "-o", to}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", filepath.Base(to), err, out)
	}
	return nil
}

// seed is that of the flag, or one of its own, and is printed.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := *seedFlag
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("replay its schedule with -seed %d -faults %d", s, *faultsFlag)
	return s
}
