package cgroup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/cgroup"
)

// newTree makes a tree, which takes root or a delegated cgroup.
func newTree(t *testing.T) *cgroup.Tree {
	t.Helper()
	tree, err := cgroup.NewTree("/sandbox-broker/" + filepath.Base(t.TempDir()) + t.Name())
	if err != nil {
		if os.Geteuid() == 0 && os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		assert.Check(t, tree.Sweep(t.Context()))
		assert.Check(t, tree.Close())
	})
	return tree
}

func TestRemoveKillsWhatIsLeft(t *testing.T) {
	tree := newTree(t)
	group, err := tree.Create("a", cgroup.Limits{MemoryBytes: 64 << 20, CPUs: 0.5, Processes: 10})
	assert.NilError(t, err)
	cmd := exec.Command("sleep", "1000")
	assert.NilError(t, cmd.Start())
	for _, dir := range dirs(t, tree, group) {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	assert.NilError(t, group.Remove(t.Context()))
	assert.ErrorContains(t, <-ended, "killed")
	assert.Assert(t, is.Len(dirs(t, tree, group), 0))
}

// dirs are the directories of a group.
func dirs(t *testing.T, tree *cgroup.Tree, group *cgroup.Group) []string {
	t.Helper()
	pattern := "/sys/fs/cgroup/*" + group.Path()
	if tree.Version() == 2 {
		pattern = "/sys/fs/cgroup" + group.Path()
	}
	found, err := filepath.Glob(pattern)
	assert.NilError(t, err)
	return found
}

func TestOutOfMemoryIsTold(t *testing.T) {
	tree := newTree(t)
	group, err := tree.Create("a", cgroup.Limits{MemoryBytes: 32 << 20})
	assert.NilError(t, err)
	assert.Check(t, !group.OutOfMemory())
	procs := filepath.Join("/sys/fs/cgroup/memory", group.Path(), "cgroup.procs")
	if tree.Version() == 2 {
		procs = filepath.Join("/sys/fs/cgroup", group.Path(), "cgroup.procs")
	}
	cmd := exec.Command("sh", "-c", `echo $$ > "$0" && exec tail /dev/zero`, procs)
	assert.ErrorContains(t, cmd.Run(), "killed")
	assert.Check(t, group.OutOfMemory())
}

func TestSweepRemovesWhatAnEarlierProcessLeft(t *testing.T) {
	tree := newTree(t)
	for _, name := range []string{"a", "b"} {
		_, err := tree.Create(name, cgroup.Limits{})
		assert.NilError(t, err)
	}
	assert.NilError(t, tree.Sweep(t.Context()))
	_, err := tree.Create("a", cgroup.Limits{})
	assert.NilError(t, err)
}

func TestANameIsTakenOnce(t *testing.T) {
	tree := newTree(t)
	_, err := tree.Create("a", cgroup.Limits{})
	assert.NilError(t, err)
	_, err = tree.Create("a", cgroup.Limits{})
	assert.Assert(t, is.ErrorContains(err, "make cgroup"))
}

// What belongs to nobody but us comes back, in each hierarchy by itself.
func TestATreeThatWasRemovedIsMadeAgain(t *testing.T) {
	tree := newTree(t)
	group, err := tree.Create("before", cgroup.Limits{})
	assert.NilError(t, err)
	own := filepath.Dir(group.Path())
	assert.NilError(t, group.Remove(t.Context()))
	everywhere, err := filepath.Glob("/sys/fs/cgroup/*" + own)
	assert.NilError(t, err)
	if tree.Version() == 2 {
		everywhere = []string{"/sys/fs/cgroup" + own}
	}
	assert.Assert(t, len(everywhere) > 0)
	for n, dir := range everywhere {
		assert.NilError(t, os.Remove(dir))
		group, err = tree.Create("after"+strconv.Itoa(n), cgroup.Limits{MemoryBytes: 64 << 20, CPUs: 1, Processes: 10})
		assert.NilError(t, err)
		assert.NilError(t, group.Remove(t.Context()))
	}
	for _, dir := range everywhere {
		if err := os.Remove(dir); !os.IsNotExist(err) {
			assert.NilError(t, err)
		}
	}
	group, err = tree.Create("last", cgroup.Limits{MemoryBytes: 64 << 20, CPUs: 1, Processes: 10})
	assert.NilError(t, err)
	assert.NilError(t, group.Remove(t.Context()))
}

// A process that is about to end keeps the directory above its group busy for longer
// than it keeps its own.
func TestATreeIsClosedAsSoonAsNothingIsInIt(t *testing.T) {
	tree := newTree(t)
	group, err := tree.Create("a", cgroup.Limits{})
	assert.NilError(t, err)
	closed := make(chan error, 1)
	go func() { closed <- tree.Close() }()
	assert.NilError(t, group.Remove(t.Context()))
	assert.NilError(t, <-closed)
}

func TestANameThatIsTakenStaysWhoseItIs(t *testing.T) {
	tree := newTree(t)
	group, err := tree.Create("a", cgroup.Limits{})
	assert.NilError(t, err)
	_, err = tree.Create("a", cgroup.Limits{})
	assert.Assert(t, err != nil)
	assert.Assert(t, len(dirs(t, tree, group)) > 0)
}

func TestLimitsChange(t *testing.T) {
	tree := newTree(t)
	group, err := tree.Create("a", cgroup.Limits{MemoryBytes: 64 << 20, CPUs: 0.5})
	assert.NilError(t, err)
	limits := func() string {
		files := []string{"/sys/fs/cgroup/memory" + group.Path() + "/memory.limit_in_bytes", "/sys/fs/cgroup/cpu" + group.Path() + "/cpu.cfs_quota_us"}
		if tree.Version() == 2 {
			files = []string{"/sys/fs/cgroup" + group.Path() + "/memory.max", "/sys/fs/cgroup" + group.Path() + "/cpu.max"}
		}
		var all []string
		for _, file := range files {
			text, err := os.ReadFile(file)
			assert.NilError(t, err)
			first, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
			all = append(all, strings.ReplaceAll(first, "max", "-1"))
		}
		return strings.Join(all, " ")
	}
	assert.Equal(t, limits(), "67108864 50000")
	assert.NilError(t, group.SetMemory(128<<20))
	assert.NilError(t, group.SetCPUs(0))
	assert.Equal(t, limits(), "134217728 -1")
	assert.NilError(t, group.SetMemory(64<<20))
	assert.NilError(t, group.SetCPUs(0.5))
	assert.Equal(t, limits(), "67108864 50000")

	// What is in use stays.
	procs := filepath.Join("/sys/fs/cgroup/memory", group.Path(), "cgroup.procs")
	if tree.Version() == 2 {
		procs = filepath.Join("/sys/fs/cgroup", group.Path(), "cgroup.procs")
	}
	cmd := exec.Command("sh", "-c", `echo $$ > "$0" && exec python3 -c 'data = bytearray(b"x" * (20 << 20)); print(1, flush=True); input()'`, procs)
	in, err := cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	_, err = out.Read(make([]byte, 1))
	assert.NilError(t, err)
	assert.ErrorIs(t, group.SetMemory(8<<20), unix.EBUSY)
	assert.NilError(t, in.Close())
	assert.ErrorContains(t, cmd.Wait(), "exit status 1", "it was not killed")
	assert.NilError(t, group.Remove(t.Context()))
}
