// Package remotetest has a sandbox for the tests of the kit that is this machine, but for
// /tmp, where the kit keeps what it knows of programs: each test has one of its own.
package remotetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
)

// Sandbox is a place.Runner.
type Sandbox struct {
	tmp string // what is /tmp in it
}

// New makes a sandbox, whose programs end with the test.
func New(t *testing.T) *Sandbox {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	s := &Sandbox{tmp: t.TempDir()}
	t.Cleanup(func() {
		for _, name := range s.Programs(t) {
			_ = place.Cancel(context.WithoutCancel(t.Context()), s, name) // it may have ended
		}
	})
	return s
}

// Workspace makes a directory for code, and says what it is called in the sandbox.
func (s *Sandbox) Workspace(t *testing.T) string {
	t.Helper()
	assert.NilError(t, os.Mkdir(filepath.Join(s.tmp, "workspace"), 0o700))
	return "/tmp/workspace"
}

// Programs are the names of those that were started.
func (s *Sandbox) Programs(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.tmp, ".sandbox-broker", "*", "meta"))
	assert.NilError(t, err)
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	return names
}

// Run implements place.Runner.
func (s *Sandbox) Run(ctx context.Context, command string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "bwrap", "--dev-bind", "/", "/", "--bind", s.tmp, "/tmp", "bash", "-c", command).Output()
	return string(out), err
}

// Upload implements place.Runner.
func (s *Sandbox) Upload(_ context.Context, path string, content []byte) error {
	return os.WriteFile(filepath.Join(s.tmp, strings.TrimPrefix(path, "/tmp")), content, 0o600)
}
