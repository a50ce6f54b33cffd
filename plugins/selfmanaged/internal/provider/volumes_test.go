package provider

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/smallroot"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const mebibyte = 1 << 20

// newVolumeProvider is newProvider with room for volumes.
func newVolumeProvider(t *testing.T, given map[string]any) testProvider {
	t.Helper()
	if os.Geteuid() != 0 {
		binaries.Missing(t, "volumes need root")
	}
	all := map[string]any{"volumes_mb": 256, "volume_dir": t.TempDir()}
	for name, value := range given {
		all[name] = value
	}
	return newProvider(t, all)
}

func newVolume(t *testing.T, p testProvider, size int64) string {
	t.Helper()
	v, err := p.CreateVolume(t.Context(), sdk.CreateVolumeRequest{Labels: map[string]string{sdk.LabelVolume: newID()}, Size: size})
	assert.NilError(t, err)
	assert.Check(t, v.Size >= size)
	return v.ID
}

func createWith(t *testing.T, p testProvider, mounts ...sdk.VolumeMount) string {
	t.Helper()
	i, err := p.Create(t.Context(), sdk.CreateRequest{Template: templateBash, Volumes: mounts})
	assert.NilError(t, err)
	return i.ID
}

// inShell runs a script and returns what it prints, errors too.
func inShell(t *testing.T, p testProvider, id, script string) string {
	t.Helper()
	out, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, ExecutionID: newID(), Language: sdk.Bash, Code: "exec 2>&1\n" + script})
	assert.NilError(t, err)
	return strings.TrimSpace(out.stdout)
}

func readVolumeFile(t *testing.T, p testProvider, id, path string) string {
	t.Helper()
	_, content, err := p.ReadFile(t.Context(), sdk.ReadFileRequest{InstanceID: id, Path: path})
	assert.NilError(t, err)
	defer content.Close()
	all, err := io.ReadAll(content)
	assert.NilError(t, err)
	return string(all)
}

func writeVolumeFile(t *testing.T, p testProvider, id, path, content string) {
	t.Helper()
	_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: path, MakeParents: true}, strings.NewReader(content))
	assert.NilError(t, err)
}

func TestVolumesAreSharedAndOutliveInstances(t *testing.T) {
	p := newVolumeProvider(t, nil)
	id := newVolume(t, p, 32*mebibyte)
	writeVolumeFile(t, p, id, "in/before", "by the API")
	a := createWith(t, p, sdk.VolumeMount{VolumeID: id, Path: "/data"})
	b := createWith(t, p, sdk.VolumeMount{VolumeID: id, Path: "/workspace/shared"})
	c := createWith(t, p, sdk.VolumeMount{VolumeID: id, Path: "/mnt/other", ReadOnly: true})

	assert.Check(t, is.Equal(inShell(t, p, a, `cat /data/in/before; echo; echo one > /data/f; stat -c %u:%g /data/f; id -u`), "by the API\n1000:1000\n1000"))
	assert.Check(t, is.Equal(inShell(t, p, b, `cat /workspace/shared/f; echo two >> /workspace/shared/f`), "one"))
	assert.Check(t, is.Equal(inShell(t, p, a, `cat /data/f`), "one\ntwo"))
	// Where others have theirs is nobody's business.
	assert.Check(t, is.Equal(inShell(t, p, b, `ls -d /data /mnt/*`), "ls: cannot access '/data': No such file or directory\n/mnt/user-data"))
	assert.Check(t, is.Equal(inShell(t, p, createWith(t, p), `ls -d /data /mnt/*`), "ls: cannot access '/data': No such file or directory\n/mnt/user-data"))
	assert.Check(t, is.Equal(inShell(t, p, c, `cat /mnt/other/f`), "one\ntwo"))
	assert.Check(t, is.Contains(inShell(t, p, c, `echo three > /mnt/other/f`), "Read-only file system"))
	assert.Check(t, is.Contains(inShell(t, p, c, `rm -rf /mnt/other/f`), "Read-only file system"))
	writeVolumeFile(t, p, id, "f", "by the API, while three have it")
	assert.Check(t, is.Equal(inShell(t, p, b, `cat /workspace/shared/f`), "by the API, while three have it"))

	assert.Check(t, is.Equal(sdk.CodeOf(p.DeleteVolume(t.Context(), id)), sdk.CodeConflict))
	_, err := p.CreateVolume(t.Context(), sdk.CreateVolumeRequest{Size: 32 * mebibyte, From: id})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeConflict))
	for _, instance := range []string{a, b, c} {
		assert.NilError(t, p.Destroy(t.Context(), instance))
	}
	assert.Check(t, is.Equal(readVolumeFile(t, p, id, "/f"), "by the API, while three have it"))

	clone, err := p.CreateVolume(t.Context(), sdk.CreateVolumeRequest{Size: 48 * mebibyte, From: id})
	assert.NilError(t, err)
	writeVolumeFile(t, p, id, "f", "changed")
	assert.Check(t, is.Equal(readVolumeFile(t, p, clone.ID, "f"), "by the API, while three have it"))
	list, err := p.ListVolumes(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(list, 2))
	assert.NilError(t, p.DeleteVolume(t.Context(), id))
	assert.NilError(t, p.DeleteVolume(t.Context(), id))
	_, err = p.StatFile(t.Context(), id, "f")
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotFound))
	_, err = p.Create(t.Context(), sdk.CreateRequest{Template: templateBash, Volumes: []sdk.VolumeMount{{VolumeID: id, Path: "/data"}}})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotFound))
	assert.NilError(t, p.DeleteVolume(t.Context(), clone.ID))
}

// What is built of a template is shared by all that are made of it, and stays as it is.
func TestInstancesOfATemplateHaveVolumes(t *testing.T) {
	p := newVolumeProvider(t, nil)
	built, err := buildTemplate(t, p, sdk.BuildTemplateRequest{Rootfs: smallroot.Bash(t), MemoryMB: 100})
	assert.NilError(t, err)
	rootfs := filepath.Join(filepath.Dir(p.dir), "templates", "images", strings.TrimPrefix(built.Image, "sha256:"), "rootfs")
	names := func(dir string) (names []string) {
		entries, err := os.ReadDir(filepath.Join(rootfs, dir))
		assert.NilError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	before, mnt := names("."), names("mnt")
	id := newVolume(t, p, 80*mebibyte)
	var instances []string
	for _, mount := range []sdk.VolumeMount{{VolumeID: id, Path: "/data"}, {VolumeID: id, Path: "/mnt/a/b", ReadOnly: true}, {VolumeID: id, Path: "/workspace/v"}} {
		i, err := p.Create(t.Context(), sdk.CreateRequest{Template: "data", Image: built.Image, Volumes: []sdk.VolumeMount{mount}})
		assert.NilError(t, err)
		instances = append(instances, i.ID)
	}
	assert.Check(t, is.Equal(inShell(t, p, instances[0], `cat /srv/greeting; echo one > /data/f`), "hello from the image"))
	assert.Check(t, is.Contains(inShell(t, p, instances[1], `echo "$(< /mnt/a/b/f)"; echo x > /mnt/a/b/f`), "Read-only file system"))
	assert.Check(t, is.Equal(inShell(t, p, instances[2], `echo "$(< /workspace/v/f)"; ulimit -f`), "one\n81920"))
	assert.DeepEqual(t, names("."), before)
	assert.DeepEqual(t, names("mnt"), mnt)
	for _, instance := range instances {
		assert.NilError(t, p.Destroy(t.Context(), instance))
	}
	assert.NilError(t, p.DeleteVolume(t.Context(), id))
	assert.NilError(t, p.RemoveTemplate(t.Context(), built.Image))
	p.templates.background.Wait()
	left, err := os.ReadDir(filepath.Dir(filepath.Dir(rootfs)))
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
}
