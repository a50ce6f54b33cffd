package pluginhost

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// signals records who is signalled, and whether that was our child at that moment.
type signals struct {
	mu        sync.Mutex
	sent      []int
	strangers []string
}

func (s *signals) kill(pid int, signal unix.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, pid)
	// A zombie counts: its number is nobody else's before it is reaped.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", -pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	if fields := strings.Fields(after); err != nil || len(fields) < 2 || fields[1] != fmt.Sprint(os.Getpid()) {
		s.strangers = append(s.strangers, fmt.Sprintf("%d: %v %s", pid, err, after))
	}
	return unix.Kill(pid, signal)
}

// A number that a process had is given to somebody else after its death. Nobody is
// signalled by it then, whoever asks for that and when.
func TestOnlyOurOwnProcessesAreSignalled(t *testing.T) {
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
			var seen signals
			r := newRunner(exe, nil, hclog.NewNullLogger())
			r.signal = seen.kill
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
			case <-r.dead:
			case <-time.After(10 * time.Second):
				t.Fatal("it does not die")
			}
			askers.Wait()
			<-r.drained
			seen.mu.Lock()
			before := len(seen.sent)
			seen.mu.Unlock()
			assert.Assert(t, before > 0)
			r.kill()
			assert.NilError(t, r.Kill(t.Context()))
			assert.Equal(t, len(seen.sent), before, "a dead process is not signalled")
			assert.Equal(t, len(seen.strangers), 0, "%v", seen.strangers)
			for _, pid := range seen.sent {
				assert.Equal(t, pid, -r.pid)
			}
		})
	}
}
