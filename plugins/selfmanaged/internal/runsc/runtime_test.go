package runsc_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestARuntimeThatCannotBeMadeLeavesNothing(t *testing.T) {
	state, name := t.TempDir(), filepath.Base(filepath.Dir(t.TempDir()))
	guest := filepath.Join(t.TempDir(), "guest")
	assert.NilError(t, os.Symlink("/proc/self/mem", guest)) // it opens, but does not read
	_, err := runsc.New(t.Context(), runsc.Options{
		StateDir: state, Name: name, Binary: binaries.Runsc(t), Guest: guest, Logger: hclog.NewNullLogger(),
	})
	assert.ErrorContains(t, err, "copy the guest")
	left, err := os.ReadDir(state)
	assert.NilError(t, err)
	assert.Check(t, is.Len(left, 0))
	for _, pattern := range []string{"/sys/fs/cgroup/*/sandbox-broker/", "/sys/fs/cgroup/sandbox-broker/"} {
		groups, err := filepath.Glob(pattern + name)
		assert.NilError(t, err)
		assert.Check(t, is.Len(groups, 0))
	}
}
