package chaos_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "of all that is drawn; 0 for another one each time")
	killsFlag = flag.Int("kills", 0, "how often the nemesis kills; 0 for a short run")
	hasteFlag = flag.Int("haste", 100, "how much faster the broker does what it does every minute")
)

// built are the executables, built once: the broker with its fail points.
var built struct{ broker, plugin string }

func TestMain(m *testing.M) {
	daytonafake.Main()
	// Most of a world is waiting. -parallel says otherwise. An error would be one of this line.
	_ = flag.Set("test.parallel", "8")
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "chaos")
	if err == nil {
		defer os.RemoveAll(dir)
		built.broker, built.plugin = filepath.Join(dir, "sandbox-broker"), filepath.Join(dir, "cloud")
		const module = "github.com/sandbox-broker/sandbox-broker/"
		err = errors.Join(
			binaries.Build(built.broker, "-tags", "failpoints", module+"cmd/sandbox-broker"),
			binaries.Build(built.plugin, module+"e2e/chaos/cloudplugin"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// seed is that of the flag, or one of its own, and is printed.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("replay its schedule with -seed %d -kills %d", s, *killsFlag)
	return s
}
