package chaos_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

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
	// Most of a world is waiting. An error would be one of this line.
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
			build(built.broker, "-tags", "failpoints", module+"cmd/sandbox-broker"),
			build(built.plugin, module+"e2e/chaos/cloudplugin"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
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
	t.Logf("replay its schedule with -seed %d -kills %d", s, *killsFlag)
	return s
}
