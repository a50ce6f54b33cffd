package nemesis_test

import (
	"flag"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
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
	assert.NilError(t, binaries.Build(built.broker, "-overlay", overlay, "-tags", "failpoints", module+"cmd/sandbox-broker"))
	assert.NilError(t, binaries.Build(built.plugin, module+"e2e/chaos/cloudplugin"))
}

// seed is that of the flag, or one of its own, and is printed.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("replay its schedule with -seed %d -faults %d", s, *faultsFlag)
	return s
}
