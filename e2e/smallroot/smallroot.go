// Package smallroot makes small root file systems for tests of templates: a few programs of
// this machine with what they are linked with.
package smallroot

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"gotest.tools/v3/assert"
)

// Greeting is what /srv/greeting says in them.
const Greeting = "hello from the image\n"

// Bash is a root file system with bash, cat and sleep. It has a file that is root's alone,
// /srv/secret, and a link in the place of /proc, which leads to /etc.
func Bash(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for _, program := range []string{"/bin/bash", "/bin/cat", "/bin/sleep"} {
		copyLinked(t, root, program)
	}
	for name, file := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"srv/greeting": {Greeting, 0o644}, "srv/secret": {"of root alone\n", 0o600}, "etc/passwd": {"root:x:0:0::/:/bin/sh\n", 0o644},
	} {
		assert.NilError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		assert.NilError(t, os.WriteFile(filepath.Join(root, name), []byte(file.text), file.mode))
	}
	assert.NilError(t, os.Symlink("/etc", filepath.Join(root, "proc")))
	return root
}

// Shell is Bash with /bin/sh and further programs of this machine.
func Shell(t testing.TB, programs ...string) string {
	t.Helper()
	root := Bash(t)
	for _, program := range append([]string{"sh"}, programs...) {
		path, err := exec.LookPath(program)
		assert.NilError(t, err)
		path, err = filepath.EvalSymlinks(path)
		assert.NilError(t, err)
		copyLinked(t, root, path)
		copied := filepath.Join(root, "usr", strings.TrimPrefix(path, "/usr"))
		if named := filepath.Join(root, "usr/bin", program); named != copied {
			assert.NilError(t, os.MkdirAll(filepath.Dir(named), 0o755))
			assert.NilError(t, os.Rename(copied, named))
		}
	}
	assert.NilError(t, os.Symlink("usr/bin", filepath.Join(root, "bin")))
	return root
}

// Image has a registry give out a root file system as the image small:1, and returns the name.
func Image(t testing.TB, root string, env ...string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	assert.NilError(t, w.AddFS(os.DirFS(root)))
	assert.NilError(t, w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	assert.NilError(t, err)
	image, err := mutate.AppendLayers(empty.Image, layer)
	assert.NilError(t, err)
	config, err := image.ConfigFile()
	assert.NilError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Env = "linux", runtime.GOARCH, env
	image, err = mutate.ConfigFile(image, config)
	assert.NilError(t, err)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/small:1")
	assert.NilError(t, err)
	assert.NilError(t, remote.Write(ref, image))
	return ref.String()
}

// copyLinked copies a program with the libraries that it is linked with.
func copyLinked(t testing.TB, root, program string) {
	t.Helper()
	copied := func(path, to string) {
		content, err := os.ReadFile(path)
		assert.NilError(t, err)
		assert.NilError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(to)), 0o755))
		assert.NilError(t, os.WriteFile(filepath.Join(root, to), content, 0o755))
	}
	copied(program, filepath.Join("usr", strings.TrimPrefix(program, "/usr")))
	linked, err := elf.Open(program)
	assert.NilError(t, err)
	defer linked.Close()
	libraries, err := linked.ImportedLibraries()
	assert.NilError(t, err)
	if len(libraries) == 0 {
		return
	}
	listed, err := exec.Command("ldd", program).Output()
	assert.NilError(t, err)
	for line := range strings.Lines(string(listed)) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				copied(word, word)
			}
		}
	}
}
