package volumes_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/volumes"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const owner = 1000

// namespace is a mount namespace with one thread in it, and ends with the test.
type namespace struct{ calls chan func() }

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		binaries.Missing(t, "volumes need root")
	}
	binaries.Needs(t, "mkfs.ext4", "e2fsprogs")
	n, ready := &namespace{make(chan func())}, make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, and so the namespace, ends with this
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		ready <- err
		for call := range n.calls {
			call()
		}
	}()
	t.Cleanup(func() { close(n.calls) })
	assert.NilError(t, <-ready)
	return n
}

func (n *namespace) in(do func() error) error {
	outcome := make(chan error, 1)
	n.calls <- func() { outcome <- do() }
	return <-outcome
}

// options are those of a store with room for so many MiB.
func options(t *testing.T, mebibytes int64) volumes.Options {
	t.Helper()
	return volumes.Options{
		Dir: t.TempDir(), MountDir: filepath.Join(t.TempDir(), "mounts"), Total: mebibytes << 20, Owner: owner,
		InNamespace: newNamespace(t).in, Logger: hclog.NewNullLogger(),
	}
}

func open(t *testing.T, o volumes.Options) *volumes.Store {
	t.Helper()
	s, err := volumes.Open(o)
	assert.NilError(t, err)
	t.Cleanup(s.Close)
	return s
}

func create(t *testing.T, s *volumes.Store, req sdk.CreateVolumeRequest) sdk.Volume {
	t.Helper()
	v, err := s.Create(t.Context(), req)
	assert.NilError(t, err)
	return v
}

func use(t *testing.T, s *volumes.Store, id string) *volumes.Use {
	t.Helper()
	u, err := s.Use(t.Context(), id)
	assert.NilError(t, err)
	return u
}

func isCode(t *testing.T, err error, code sdk.Code) {
	t.Helper()
	assert.Check(t, is.Equal(sdk.CodeOf(err), code), "%v", err)
}

func TestFilesOutliveTheirUsesAndTheProcess(t *testing.T) {
	o := options(t, 64)
	s := open(t, o)
	v := create(t, s, sdk.CreateVolumeRequest{Size: volumes.MinSize, Labels: map[string]string{"a": "b"}, IdempotencyKey: "once"})
	assert.Check(t, volumes.Owns(v.ID))
	assert.DeepEqual(t, create(t, s, sdk.CreateVolumeRequest{Size: volumes.MinSize, IdempotencyKey: "once"}), v)

	first, second := use(t, s, v.ID), use(t, s, v.ID)
	assert.NilError(t, os.WriteFile(filepath.Join(first.Root(), "file"), []byte("kept"), 0o600))
	assert.NilError(t, o.InNamespace(func() error {
		content, err := os.ReadFile(filepath.Join(second.Path(true), "file"))
		assert.Check(t, err)
		assert.Check(t, is.Equal(string(content), "kept"))
		assert.Check(t, is.ErrorIs(os.WriteFile(filepath.Join(second.Path(true), "other"), nil, 0o600), unix.EROFS))
		return os.WriteFile(filepath.Join(second.Path(false), "other"), nil, 0o600)
	}))
	_, err := os.Stat(filepath.Join(first.Path(false), "file"))
	assert.Check(t, is.ErrorIs(err, fs.ErrNotExist), "the mount is of the namespace alone")
	isCode(t, s.Delete(t.Context(), v.ID), sdk.CodeConflict)
	first.Release()
	isCode(t, s.Delete(t.Context(), v.ID), sdk.CodeConflict)
	second.Release()

	// Another process begins where this one was, also while this one is there.
	o.MountDir = filepath.Join(t.TempDir(), "mounts")
	later := open(t, o)
	list, err := later.List()
	assert.NilError(t, err)
	assert.Equal(t, len(list), 1)
	assert.DeepEqual(t, list[0].Labels, map[string]string{"a": "b"})
	assert.Check(t, list[0].Used > 0)
	u := use(t, later, v.ID)
	content, err := os.ReadFile(filepath.Join(u.Root(), "file"))
	assert.NilError(t, err)
	assert.Equal(t, string(content), "kept")
	isCode(t, s.Delete(t.Context(), v.ID), sdk.CodeConflict)
	shared := use(t, s, v.ID)
	assert.NilError(t, os.WriteFile(filepath.Join(shared.Root(), "both"), nil, 0o600))
	_, err = os.Stat(filepath.Join(u.Root(), "both"))
	assert.NilError(t, err, "it is one file system")
	shared.Release()
	u.Release()

	assert.NilError(t, s.Delete(t.Context(), v.ID))
	assert.NilError(t, s.Delete(t.Context(), v.ID), "and again")
	_, err = later.Use(t.Context(), v.ID)
	isCode(t, err, sdk.CodeNotFound)
}

func TestVolumesHaveNoMoreRoomThanTheirs(t *testing.T) {
	s := open(t, options(t, 40))
	v := create(t, s, sdk.CreateVolumeRequest{Size: volumes.MinSize + 1})
	assert.Equal(t, v.Size, int64(volumes.MinSize+1<<20), "rounded up")
	for _, size := range []int64{0, -1, volumes.MinSize - 1, volumes.MaxSize + 1} {
		_, err := s.Create(t.Context(), sdk.CreateVolumeRequest{Size: size})
		isCode(t, err, sdk.CodeInvalidRequest)
	}
	create(t, s, sdk.CreateVolumeRequest{Size: volumes.MinSize})
	_, err := s.Create(t.Context(), sdk.CreateVolumeRequest{Size: volumes.MinSize})
	isCode(t, err, sdk.CodeQuotaExceeded)

	u := use(t, s, v.ID)
	defer u.Release()
	err = os.WriteFile(filepath.Join(u.Root(), "large"), make([]byte, volumes.MinSize+2<<20), 0o600)
	assert.Check(t, is.ErrorIs(err, unix.ENOSPC))
}

func TestACopyHasItsOwnFiles(t *testing.T) {
	s := open(t, options(t, 128))
	v := create(t, s, sdk.CreateVolumeRequest{Size: volumes.MinSize})
	u := use(t, s, v.ID)
	assert.NilError(t, os.WriteFile(filepath.Join(u.Root(), "file"), []byte("of the first"), 0o600))
	_, err := s.Create(t.Context(), sdk.CreateVolumeRequest{Size: volumes.MinSize, From: v.ID})
	isCode(t, err, sdk.CodeConflict)
	u.Release()

	larger := create(t, s, sdk.CreateVolumeRequest{Size: 2 * volumes.MinSize, From: v.ID})
	of, original := use(t, s, larger.ID), use(t, s, v.ID)
	assert.NilError(t, os.WriteFile(filepath.Join(of.Root(), "file"), []byte("of the copy"), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(of.Root(), "large"), make([]byte, volumes.MinSize), 0o600), "its file system has grown")
	content, err := os.ReadFile(filepath.Join(original.Root(), "file"))
	assert.NilError(t, err)
	assert.Equal(t, string(content), "of the first")
	of.Release()
	original.Release()

	_, err = s.Create(t.Context(), sdk.CreateVolumeRequest{Size: volumes.MinSize, From: larger.ID})
	isCode(t, err, sdk.CodeInvalidRequest)
	for _, none := range []string{"x", "../../etc", "volume-" + strings.Repeat("a", 26)} {
		_, err = s.Create(t.Context(), sdk.CreateVolumeRequest{Size: volumes.MinSize, From: none})
		isCode(t, err, sdk.CodeNotFound)
	}
}

// What is not a volume yet, or no more, is removed by the next process, and takes no room.
func TestWhatWasBegunIsSwept(t *testing.T) {
	o := options(t, 16)
	for _, name := range []string{".making-volume-x-1", ".removing-volume-x-2"} {
		dir := filepath.Join(o.Dir, name)
		assert.NilError(t, os.Mkdir(dir, 0o700))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "volume.json"), []byte(`{"size": 16777216}`), 0o600))
	}
	s := open(t, o)
	v := create(t, s, sdk.CreateVolumeRequest{Size: volumes.MinSize})
	assert.NilError(t, s.Delete(t.Context(), v.ID))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Create(ctx, sdk.CreateVolumeRequest{Size: volumes.MinSize})
	assert.Check(t, is.ErrorIs(err, context.Canceled))
	entries, err := os.ReadDir(o.Dir)
	assert.NilError(t, err)
	for _, entry := range entries {
		assert.Check(t, !entry.IsDir(), entry.Name())
	}
}
