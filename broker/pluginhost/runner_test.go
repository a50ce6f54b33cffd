package pluginhost

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
)

// However many ask for the end of a process, and whether it has one by itself: it ends
// once, with all that it has started, and a dead one is left alone.
func TestAProcessEndsOnceWhoeverKillsIt(t *testing.T) {
	for name, script := range map[string]string{
		"one that ends by itself":          "#!/bin/sh\nexit 3\n",
		"one that is killed":               "#!/bin/sh\nread line\n",
		"one that leaves a child behind":   "#!/bin/sh\nsleep 60 &\nexit 0\n",
		"one that ends while it is killed": "#!/bin/sh\nkill -9 $$\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "plugin")
			assert.NilError(t, os.WriteFile(path, []byte(script), 0o700))
			assert.NilError(t, os.Chmod(dir, 0o700))
			exe, err := openExecutable(dir, "plugin", "")
			assert.NilError(t, err)
			defer exe.close()
			host, err := watchdog.NewHost("/proc/self/exe", false)
			assert.NilError(t, err)
			r := newRunner(host, "box", exe, nil, hclog.NewNullLogger())
			_, err = r.prepare(nil, exec.Command("none"), dir)
			assert.NilError(t, err)
			assert.NilError(t, r.Start(t.Context()))
			if name == "one that is killed" {
				r.kill()
			}
			var askers sync.WaitGroup
			for range 4 {
				askers.Go(func() {
					for {
						r.kill()
						select {
						case <-r.dead:
							return
						default:
						}
					}
				})
			}
			select {
			case <-r.drained:
			case <-time.After(4 * time.Minute):
				t.Fatal("it does not die")
			}
			askers.Wait()
			assert.NilError(t, r.Kill(t.Context()))
			assert.Assert(t, !r.process.Lives())
			_, err = r.openProgram()
			assert.Assert(t, err != nil, "the program of a process that is gone")
		})
	}
}
