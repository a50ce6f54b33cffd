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
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/cgroup"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestARuntimeThatCannotBeMadeLeavesNothing(t *testing.T) {
	state, name := t.TempDir(), filepath.Base(filepath.Dir(t.TempDir()))
	guest := t.TempDir() // it opens, but does not read
	_, err := runsc.New(t.Context(), runsc.Options{
		StateDir: state, Name: name, Binary: binaries.Runsc(t), Guest: guest, Logger: hclog.NewNullLogger(),
	})
	assert.ErrorContains(t, err, "copy the guest")
	left, err := os.ReadDir(state)
	assert.NilError(t, err)
	assert.Check(t, is.Len(left, 0))
	assert.Check(t, is.Len(groupsOf(t, name), 0))
}

func TestWhatEarlierProcessesLeftIsCleared(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	parent, name := t.TempDir(), filepath.Base(filepath.Dir(t.TempDir()))
	earlier, err := cgroup.NewTree("/sandbox-broker/" + name + "-1")
	assert.NilError(t, err)
	_, err = earlier.Create("sandbox", cgroup.Limits{})
	assert.NilError(t, err)
	guest := filepath.Join(t.TempDir(), "guest")
	assert.NilError(t, os.WriteFile(guest, nil, 0o755))
	r, err := runsc.New(t.Context(), runsc.Options{
		StateDir: filepath.Join(parent, "2"), AbandonedDirs: []string{filepath.Join(parent, "1")},
		Name: name, Binary: binaries.Runsc(t), Guest: guest, Platform: "systrap", Logger: hclog.NewNullLogger(),
	})
	assert.NilError(t, err)
	assert.Check(t, is.Len(groupsOf(t, name+"-1"), 0))
	assert.NilError(t, r.Close())
	assert.Check(t, is.Len(groupsOf(t, name), 0))
}

func groupsOf(t *testing.T, name string) (groups []string) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/*/sandbox-broker/", "/sys/fs/cgroup/sandbox-broker/"} {
		found, err := filepath.Glob(pattern + name + "*")
		assert.NilError(t, err)
		groups = append(groups, found...)
	}
	return groups
}
