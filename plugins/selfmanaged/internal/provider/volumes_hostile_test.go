package provider

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/volumes"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Programs leave what is to mislead the machine that reads the volume later, or to take
// more than there is. The same volume is read and changed through the files API.
func TestWhatIsHostileStaysInAVolume(t *testing.T) {
	p := newVolumeProvider(t, nil)
	id := newVolume(t, p, 16*mebibyte)
	instance := createWith(t, p, sdk.VolumeMount{VolumeID: id, Path: "/data"})
	ctx := t.Context()
	outside := filepath.Join(t.TempDir(), "secret")
	assert.NilError(t, os.WriteFile(outside, []byte("of the machine"), 0o644))

	refusedRead := func(path string) {
		t.Helper()
		_, content, err := p.ReadFile(ctx, sdk.ReadFileRequest{InstanceID: id, Path: path})
		if err == nil {
			_ = content.Close()
		}
		assert.Check(t, err != nil, "%s was read", path)
	}
	refusedWrite := func(path string) {
		t.Helper()
		_, err := p.WriteFile(ctx, sdk.WriteFileRequest{InstanceID: id, Path: path, MakeParents: true}, strings.NewReader("x"))
		assert.Check(t, err != nil, "%s was written", path)
	}

	t.Run("links lead nowhere", func(t *testing.T) {
		inShell(t, p, instance, fmt.Sprintf(`cd /data; ln -s %s file; ln -s %s dir; ln -s / root; ln -s ../../../../../../.. up; ln -s loop loop; ln -s /proc/self/root proc`, outside, filepath.Dir(outside)))
		for _, path := range []string{"file", "dir/secret", "root" + outside, "up" + outside, "loop", "proc" + outside, "../" + outside, "/proc/self/environ", "/etc/passwd"} {
			refusedRead(path)
		}
		refusedWrite("dir/new")
		_, err := p.MoveFile(ctx, sdk.MoveFileRequest{InstanceID: id, From: "dir/secret", To: "stolen"})
		assert.Check(t, err != nil)
		assert.Check(t, p.RemoveFile(ctx, id, "dir/secret", false) != nil)
		assert.NilError(t, p.RemoveFile(ctx, id, "dir", true))
		content, err := os.ReadFile(outside)
		assert.NilError(t, err)
		assert.Check(t, is.Equal(string(content), "of the machine"))
	})
	t.Run("no device is opened, no pipe waited for", func(t *testing.T) {
		said := inShell(t, p, instance, `cd /data; mknod disk b 7 0; mknod null c 1 3; mkfifo pipe; ls -l`)
		assert.Check(t, is.Contains(said, "Operation not permitted"))
		refusedRead("pipe")
		refusedRead("disk")
	})
	t.Run("a device that is there all the same is none", func(t *testing.T) {
		use, err := p.volumes.store.Use(ctx, id)
		assert.NilError(t, err)
		defer use.Release()
		assert.NilError(t, unix.Mknod(filepath.Join(use.Root(), "device"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))))
		_, err = os.ReadFile(filepath.Join(use.Root(), "device"))
		assert.Check(t, is.ErrorContains(err, "permission denied"))
		assert.Check(t, is.Contains(inShell(t, p, instance, `head -c 4 /data/device`), "cannot open"))
	})
	t.Run("a set-user-ID bit has no effect", func(t *testing.T) {
		said := inShell(t, p, instance, `cd /data; cp /usr/bin/id own-id; chmod 6755 own-id; ./own-id -u`)
		assert.Check(t, is.Equal(said, "1000"))
		use, err := p.volumes.store.Use(ctx, id)
		assert.NilError(t, err)
		defer use.Release()
		program := filepath.Join(use.Root(), "root-id")
		assert.NilError(t, copyWithBit(filepath.Join(use.Root(), "own-id"), program))
		said = inShell(t, p, instance, `/data/root-id -u`)
		assert.Check(t, is.Equal(said, "1000"), "a program of root's, with the bit, run in the sandbox")
	})
	t.Run("names are any bytes", func(t *testing.T) {
		inShell(t, p, instance, `cd /data; mkdir names; cd names; touch $'a\nb' $'\xff\xfe' $'-rf' $'\x1b[31m' "$(printf 'x%.0s' {1..255})"; mkdir -p "$(printf 'd/%.0s' {1..300})"`)
		_, err := p.ListFiles(ctx, sdk.ListFilesRequest{InstanceID: id, Path: "names", Depth: 256, Limit: 10000}, func([]sdk.FileInfo) error { return nil })
		assert.NilError(t, err)
		inShell(t, p, instance, `rm -rf /data/names`)
	})
	t.Run("modes keep nobody from removing what is the user's", func(t *testing.T) {
		inShell(t, p, instance, `cd /data; mkdir -p closed/in; touch closed/in/f; chmod 000 closed/in closed`)
		assert.NilError(t, p.RemoveFile(ctx, id, "closed", true))
	})
	t.Run("what is root's stays root's", func(t *testing.T) {
		use, err := p.volumes.store.Use(ctx, id)
		assert.NilError(t, err)
		defer use.Release()
		path := filepath.Join(use.Root(), "roots")
		assert.NilError(t, os.WriteFile(path, []byte("root's"), 0o600))
		refusedRead("roots")
		assert.Check(t, is.Contains(inShell(t, p, instance, `cat /data/roots`), "Permission denied"))
	})
	t.Run("a race of links leads nowhere", func(t *testing.T) {
		inShell(t, p, instance, `cd /data; mkdir race; (for i in {1..2000}; do rm -rf race; ln -s `+filepath.Dir(outside)+` race; rm race; mkdir race; done) >/dev/null 2>&1 & sleep 0`)
		for range 300 {
			if _, content, err := p.ReadFile(ctx, sdk.ReadFileRequest{InstanceID: id, Path: "race/secret"}); err == nil {
				_ = content.Close()
				t.Fatal("a file outside was opened")
			}
		}
	})
	t.Run("the volume is full, and nothing else is", func(t *testing.T) {
		said := inShell(t, p, instance, `head -c 100M /dev/zero > /data/big; rm /data/big`)
		assert.Check(t, is.Contains(said, "No space left on device"))
		said = inShell(t, p, instance, `cd /data; mkdir many; cd many; i=0; { while : > $((i++)); do :; done; } 2>&1; cd ..; rm -rf many`)
		assert.Check(t, is.Contains(said, "No space left on device"))
		writeVolumeFile(t, p, id, "after", "there is room again")
	})
	t.Run("read-only is so for whoever is root in the sandbox", func(t *testing.T) {
		reader := createWith(t, p, sdk.VolumeMount{VolumeID: id, Path: "/data", ReadOnly: true})
		said := inShell(t, p, reader, `mount -o remount,rw /data; touch /data/x; chmod 777 /data/after; mv /data/after /data/b; ln /data/after /data/c; truncate -s 0 /data/after; exec 3>>/data/after`)
		assert.Check(t, !strings.Contains(said, "succeeded"))
		assert.Check(t, is.Equal(readVolumeFile(t, p, id, "after"), "there is room again"))
		use, err := p.volumes.store.Use(ctx, id)
		assert.NilError(t, err)
		defer use.Release()
		// Even a gVisor that was overcome finds the mount itself read-only.
		err = p.runtime.(sharer).InNamespace(func() error { return os.WriteFile(filepath.Join(use.Path(true), "x"), nil, 0o644) })
		assert.Check(t, is.ErrorContains(err, "read-only file system"))
	})
	t.Run("sandboxes see no volume of another", func(t *testing.T) {
		other := newVolume(t, p, 16*mebibyte)
		writeVolumeFile(t, p, other, "secret", "of another")
		said := inShell(t, p, instance, `find / -xdev -name secret 2>/dev/null; cat /proc/mounts /proc/self/mountinfo | grep -c `+other+`; ls /data/../..`)
		assert.Check(t, !strings.Contains(said, "secret"), "%s", said)
		assert.Check(t, strings.HasPrefix(said, "0\n"), "%s", said)
	})
}

func copyWithBit(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, content, 0o755); err != nil {
		return err
	}
	return os.Chmod(to, 0o755|os.ModeSetuid)
}

func TestVolumesHaveABound(t *testing.T) {
	p := newVolumeProvider(t, map[string]any{"volumes_mb": 64})
	for name, size := range map[string]int64{"too small": 1, "too large": 1 << 62, "negative": -1} {
		_, err := p.CreateVolume(t.Context(), sdk.CreateVolumeRequest{Size: size})
		assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeInvalidRequest), name)
	}
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = p.CreateVolume(t.Context(), sdk.CreateVolumeRequest{Size: 16 * mebibyte, IdempotencyKey: fmt.Sprint(i)})
		})
	}
	wg.Wait()
	made, refused := 0, 0
	for _, err := range errs {
		switch {
		case err == nil:
			made++
		case sdk.CodeOf(err) == sdk.CodeQuotaExceeded:
			refused++
		default:
			assert.NilError(t, err)
		}
	}
	assert.Check(t, is.Equal(made, 4))
	assert.Check(t, is.Equal(refused, 2))
}

// Two processes have the same volumes during an upgrade. Here they are two providers of one
// process, each with its own mount namespace; that a lock is another's they cannot tell.
func TestTwoProcessesShareVolumes(t *testing.T) {
	if os.Geteuid() != 0 {
		binaries.Missing(t, "volumes need root")
	}
	dir, broker := t.TempDir(), "test"+newID()
	given := map[string]any{"volumes_mb": 64, "volume_dir": dir}
	older, newer := volumeProviderOf(t, broker, given), volumeProviderOf(t, broker, given)
	made, err := older.CreateVolume(t.Context(), sdk.CreateVolumeRequest{Size: 16 * mebibyte, IdempotencyKey: "k"})
	assert.NilError(t, err)
	again, err := newer.CreateVolume(t.Context(), sdk.CreateVolumeRequest{Size: 16 * mebibyte, IdempotencyKey: "k"})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(made.ID, again.ID))
	a := createWith(t, older, sdk.VolumeMount{VolumeID: made.ID, Path: "/data"})
	b := createWith(t, newer, sdk.VolumeMount{VolumeID: made.ID, Path: "/data"})
	inShell(t, older, a, "echo old > /data/f")
	assert.Check(t, is.Equal(inShell(t, newer, b, "cat /data/f; echo new >> /data/f"), "old"))
	assert.Check(t, is.Equal(inShell(t, older, a, "cat /data/f"), "old\nnew"))
	assert.Check(t, is.Equal(devicesOf(t, dir), 1), "two devices of one file system would destroy it")
	assert.NilError(t, older.Destroy(t.Context(), a))
	assert.Check(t, is.Equal(sdk.CodeOf(older.DeleteVolume(t.Context(), made.ID)), sdk.CodeConflict))
	assert.NilError(t, newer.Destroy(t.Context(), b))
	image := filepath.Join(dir, broker+"-self_managed", made.ID, "image")
	out, err := exec.CommandContext(t.Context(), "e2fsck", "-f", "-n", image).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	assert.NilError(t, older.DeleteVolume(t.Context(), made.ID))
}

func volumeProviderOf(t *testing.T, broker string, given map[string]any) testProvider {
	t.Helper()
	dir := filepath.Join(scratch.Dir(t), "p")
	assert.NilError(t, os.Mkdir(dir, 0o700))
	p := configured(t, dir, broker, given)
	t.Cleanup(func() { assert.Check(t, p.Close(context.WithoutCancel(t.Context()))) })
	return testProvider{p, dir, broker}
}

// devicesOf counts the loop devices of images below a directory.
func devicesOf(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	assert.NilError(t, err)
	for _, file := range files {
		if path, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(path), dir) {
			n++
		}
	}
	return n
}

func TestWithoutVolumesItSaysWhy(t *testing.T) {
	p := newProvider(t, nil)
	_, err := p.CreateVolume(t.Context(), sdk.CreateVolumeRequest{Size: 16 * mebibyte})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotSupported))
	assert.Check(t, is.ErrorContains(err, "volumes_mb"))
	_, err = p.Create(t.Context(), sdk.CreateRequest{Template: templateBash, Volumes: []sdk.VolumeMount{{VolumeID: "v", Path: "/data"}}})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotSupported))
	list, err := p.ListVolumes(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(list, 0))
	assert.Check(t, !volumes.Owns(newID()), "the ID of an instance is none of a volume")
}
