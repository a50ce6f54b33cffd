package imagestore_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/imagestore"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// tarOf is an archive of programs, by path.
func tarOf(t testing.TB, programs map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for path, text := range programs {
		assert.NilError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o755, Size: int64(len(text))}))
		_, err := w.Write([]byte(text))
		assert.NilError(t, err)
	}
	assert.NilError(t, w.Close())
	return b.Bytes()
}

func layerOf(t testing.TB, raw []byte) v1.Layer {
	t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
	assert.NilError(t, err)
	return l
}

// imageOf is an image of those layers, for this machine unless change says otherwise.
func imageOf(t testing.TB, change func(*v1.ConfigFile), layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, layers...)
	assert.NilError(t, err)
	config, err := image.ConfigFile()
	assert.NilError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Env = []string{"PATH=/opt/tools:/usr/bin", "GREETING=hello"}
	if change != nil {
		change(config)
	}
	image, err = mutate.ConfigFile(image, config)
	assert.NilError(t, err)
	return image
}

// registryOf serves a registry, and counts the layers that are asked for.
type registryOf struct {
	host  string
	blobs atomic.Int64
	gone  atomic.Bool // it has no layers any more, but configurations
}

func newRegistry(t testing.TB) *registryOf {
	t.Helper()
	r := &registryOf{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/sha256:") {
			r.blobs.Add(1)
			if r.gone.Load() {
				recorded := httptest.NewRecorder()
				inner.ServeHTTP(recorded, req)
				if !json.Valid(recorded.Body.Bytes()) {
					w.WriteHeader(http.StatusNotFound)
					return
				}
			}
		}
		inner.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

func (r *registryOf) push(t testing.TB, repository string, image v1.Image) string {
	t.Helper()
	ref, err := name.ParseReference(r.host + "/" + repository)
	assert.NilError(t, err)
	assert.NilError(t, remote.Write(ref, image))
	return ref.String()
}

func open(t testing.TB, dir, owner string) *imagestore.Store {
	t.Helper()
	s, err := imagestore.Open(imagestore.Options{Dir: dir, Owner: owner})
	assert.NilError(t, err)
	return s
}

func build(t testing.TB, s *imagestore.Store, req sdk.BuildTemplateRequest) (*imagestore.Image, []string, error) {
	t.Helper()
	if req.Name == "" {
		req.Name = "t"
	}
	var steps []string
	image, err := s.Build(t.Context(), req, imagestore.Tools{}, func(p sdk.TemplateProgress) error {
		steps = append(steps, p.Step)
		return nil
	})
	return image, steps, err
}

func read(t testing.TB, i *imagestore.Image, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(i.Rootfs(), path))
	if errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	assert.NilError(t, err)
	return string(text)
}

func TestImagesComeFromARegistryOnce(t *testing.T) {
	r := newRegistry(t)
	base := layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!1", "etc/base": "b"}))
	first := r.push(t, "first:1", imageOf(t, nil, base, layerOf(t, tarOf(t, map[string]string{"opt/tools/python3": "#!2", "etc/.wh.base": ""}))))
	second := r.push(t, "second:1", imageOf(t, nil, base, layerOf(t, tarOf(t, map[string]string{"etc/second": "2"}))))
	dir := t.TempDir()
	s := open(t, dir, "a")

	one, _, err := build(t, s, sdk.BuildTemplateRequest{From: first})
	assert.NilError(t, err)
	assert.DeepEqual(t, one.Languages, []sdk.Language{sdk.Python, sdk.Bash})
	assert.DeepEqual(t, one.Interpreters, map[sdk.Language]string{sdk.Python: "/opt/tools/python3", sdk.Bash: "/usr/bin/bash"})
	assert.Equal(t, one.Env["GREETING"], "hello")
	assert.Equal(t, read(t, one, "etc/base"), "none")
	asked := r.blobs.Load()

	two, steps, err := build(t, s, sdk.BuildTemplateRequest{From: second})
	assert.NilError(t, err)
	assert.Assert(t, is.Contains(steps, "layer 1 of 2 is here already"))
	assert.Equal(t, r.blobs.Load()-asked, int64(2), "its configuration and one layer")
	assert.Equal(t, read(t, two, "etc/base"), "b")
	x, err := os.Stat(filepath.Join(one.Rootfs(), "usr/bin/bash"))
	assert.NilError(t, err)
	y, err := os.Stat(filepath.Join(two.Rootfs(), "usr/bin/bash"))
	assert.NilError(t, err)
	assert.Assert(t, os.SameFile(x, y), "images share what their layers share")

	// The tag leads elsewhere by now; who is pinned does not notice, with no registry at all.
	r.push(t, "first:1", imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/node": "#!3"}))))
	asked = r.blobs.Load()
	pinned := sdk.BuildTemplateRequest{From: first, Source: one.Source}
	again, steps, err := build(t, open(t, dir, "b"), pinned)
	assert.NilError(t, err)
	assert.Equal(t, again.Image, one.Image)
	assert.Equal(t, len(steps), 0)
	assert.Equal(t, r.blobs.Load(), asked)
	elsewhere, _, err := build(t, open(t, t.TempDir(), "a"), pinned)
	assert.NilError(t, err)
	assert.Equal(t, elsewhere.Source, one.Source)
	assert.Equal(t, elsewhere.Image, one.Image)
	anew, _, err := build(t, s, sdk.BuildTemplateRequest{From: first})
	assert.NilError(t, err)
	assert.DeepEqual(t, anew.Languages, []sdk.Language{sdk.JavaScript})
}

func TestImagesComeFromFiles(t *testing.T) {
	image := imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!", "etc/x": "from the image"})))
	root := tarOf(t, map[string]string{"usr/bin/bash": "#!", "etc/x": "from the tree"})
	dir := t.TempDir()
	saved, plain, tree, oci := filepath.Join(dir, "saved.tar"), filepath.Join(dir, "plain.tar"), filepath.Join(dir, "tree"), filepath.Join(dir, "oci")
	tag, err := name.NewTag("example.com/a:1")
	assert.NilError(t, err)
	assert.NilError(t, tarball.WriteToFile(saved, tag, image))
	assert.NilError(t, os.WriteFile(plain, root, 0o600))
	assert.NilError(t, os.MkdirAll(filepath.Join(tree, "usr/bin"), 0o755))
	assert.NilError(t, os.MkdirAll(filepath.Join(tree, "etc"), 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join(tree, "usr/bin/bash"), []byte("#!"), 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join(tree, "etc/x"), []byte("from the tree"), 0o644))
	assert.NilError(t, os.Symlink("/etc/hostname", filepath.Join(tree, "etc/link")))
	path, err := layout.Write(oci, empty.Index)
	assert.NilError(t, err)
	assert.NilError(t, path.AppendImage(image))

	s := open(t, t.TempDir(), "a")
	for from, want := range map[string]string{saved: "from the image", oci: "from the image", plain: "from the tree", tree: "from the tree"} {
		built, _, err := build(t, s, sdk.BuildTemplateRequest{Rootfs: from})
		assert.NilError(t, err, from)
		assert.Check(t, is.Equal(read(t, built, "etc/x"), want), from)
		again, _, err := build(t, s, sdk.BuildTemplateRequest{Rootfs: from})
		assert.NilError(t, err, from)
		assert.Check(t, is.Equal(again.Image, built.Image), "the same contents are the same image: %s", from)
	}
	built, _, err := build(t, s, sdk.BuildTemplateRequest{Rootfs: tree})
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(tree, "etc/x"), []byte("changed"), 0o644))
	pinned, _, err := build(t, s, sdk.BuildTemplateRequest{Rootfs: tree, Source: built.Source})
	assert.NilError(t, err)
	assert.Equal(t, read(t, pinned, "etc/x"), "from the tree")
	_, _, err = build(t, open(t, t.TempDir(), "a"), sdk.BuildTemplateRequest{Rootfs: tree, Source: built.Source})
	assert.ErrorContains(t, err, "has changed")
}

func TestImagesThatAreOfNoUseSayWhy(t *testing.T) {
	r := newRegistry(t)
	bash := layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!"}))
	lying := layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!", "etc/planted": "x"}))
	foreign, err := mutate.Append(imageOf(t, nil), mutate.Addendum{
		Layer: static.NewLayer([]byte("x"), types.DockerForeignLayer), URLs: []string{"http://169.254.169.254/latest/meta-data"},
		MediaType: types.DockerForeignLayer,
	})
	assert.NilError(t, err)
	for name, c := range map[string]struct {
		req  sdk.BuildTemplateRequest
		code sdk.Code
		want string
	}{
		"no interpreter":          {sdk.BuildTemplateRequest{From: r.push(t, "empty", imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"bin/sh": "#!"}))))}, sdk.CodeInvalidRequest, "has no python3, node or bash"},
		"another machine":         {sdk.BuildTemplateRequest{From: r.push(t, "arch", imageOf(t, func(c *v1.ConfigFile) { c.Architecture = "riscv64" }, bash))}, sdk.CodeInvalidRequest, "is for linux/riscv64"},
		"another system":          {sdk.BuildTemplateRequest{From: r.push(t, "os", imageOf(t, func(c *v1.ConfigFile) { c.OS = "windows" }, bash))}, sdk.CodeInvalidRequest, "is for windows"},
		"packages without Python": {sdk.BuildTemplateRequest{From: r.push(t, "bash", imageOf(t, nil, bash)), Packages: []string{"numpy"}}, sdk.CodeInvalidRequest, "no python3 in the image"},
		"a program without bash":  {sdk.BuildTemplateRequest{From: r.push(t, "node", imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/node": "#!"})))), Start: "x"}, sdk.CodeInvalidRequest, "no bash in the image"},
		"contents that are not those of the sum": {sdk.BuildTemplateRequest{From: r.push(t, "lie", imageOf(t, func(c *v1.ConfigFile) {
			diffID, err := bash.DiffID()
			assert.NilError(t, err)
			c.RootFS.DiffIDs = []v1.Hash{diffID}
		}, lying))}, sdk.CodeInvalidRequest, "it is not what the image names"},
		"more layers than it names":    {sdk.BuildTemplateRequest{From: r.push(t, "count", imageOf(t, func(c *v1.ConfigFile) { c.RootFS.DiffIDs = nil }, bash))}, sdk.CodeInvalidRequest, "has 1 layers and names 0"},
		"a layer from elsewhere":       {sdk.BuildTemplateRequest{From: r.push(t, "foreign", foreign)}, sdk.CodeInvalidRequest, "has a layer that is not in the registry"},
		"a layer that leaves the root": {sdk.BuildTemplateRequest{From: r.push(t, "leaves", imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"../x": "x"}))))}, sdk.CodeInvalidRequest, "leaves the root file system"},
		"no such image":                {sdk.BuildTemplateRequest{From: r.host + "/none:1"}, sdk.CodeInvalidRequest, "has no image"},
		"no name":                      {sdk.BuildTemplateRequest{From: "not a name"}, sdk.CodeInvalidRequest, "is no name of an image"},
		"no registry":                  {sdk.BuildTemplateRequest{From: "127.0.0.1:1/x:1"}, sdk.CodeConnectionFailed, "could not be had"},
		"no such file":                 {sdk.BuildTemplateRequest{Rootfs: "/no/such/file"}, sdk.CodeInvalidRequest, "cannot be read"},
		"a file that is none":          {sdk.BuildTemplateRequest{Rootfs: "/dev/null"}, sdk.CodeInvalidRequest, "neither a directory nor an archive"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, "a")
			_, _, err := build(t, s, c.req)
			assert.ErrorContains(t, err, c.want)
			assert.Equal(t, sdk.CodeOf(err), c.code)
			list, err := s.List()
			assert.NilError(t, err)
			assert.Equal(t, len(list), 0)
			left, err := os.ReadDir(filepath.Join(dir, "scratch"))
			assert.NilError(t, err)
			assert.Equal(t, len(left), 0, "nothing is left of a build that failed")
		})
	}
}

func TestWhatNobodyWantsIsRemoved(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := open(t, dir, "ours"), open(t, dir, "theirs")
	one, two := filepath.Join(t.TempDir(), "1.tar"), filepath.Join(t.TempDir(), "2.tar")
	assert.NilError(t, os.WriteFile(one, tarOf(t, map[string]string{"usr/bin/bash": "1"}), 0o600))
	assert.NilError(t, os.WriteFile(two, tarOf(t, map[string]string{"usr/bin/bash": "2"}), 0o600))
	shared, _, err := build(t, ours, sdk.BuildTemplateRequest{Rootfs: one})
	assert.NilError(t, err)
	_, _, err = build(t, theirs, sdk.BuildTemplateRequest{Rootfs: one})
	assert.NilError(t, err)
	used, _, err := build(t, ours, sdk.BuildTemplateRequest{Rootfs: two})
	assert.NilError(t, err)
	there := func() (names []string) {
		for _, i := range []*imagestore.Image{shared, used} {
			if _, err := os.Stat(i.Rootfs()); err == nil {
				names = append(names, i.Image)
			}
		}
		return names
	}
	count := func(name string) int {
		entries, err := os.ReadDir(filepath.Join(dir, name))
		assert.NilError(t, err)
		return len(entries)
	}

	_, release, err := theirs.Use(used.Image)
	assert.NilError(t, err)
	for _, image := range []string{shared.Image, used.Image, used.Image} {
		assert.NilError(t, ours.Remove(t.Context(), image))
	}
	assert.NilError(t, ours.Collect())
	assert.DeepEqual(t, there(), []string{shared.Image, used.Image}) // one is wanted, the other used
	release()
	assert.NilError(t, ours.Collect())
	assert.DeepEqual(t, there(), []string{shared.Image})
	assert.Equal(t, count("layers"), 1)
	_, _, err = ours.Use(used.Image)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.NilError(t, theirs.Remove(t.Context(), shared.Image))
	assert.NilError(t, theirs.Collect())
	assert.Equal(t, len(there()), 0)
	assert.Equal(t, count("layers"), 0)
	assert.NilError(t, ours.Remove(t.Context(), "../../etc"))
	_, _, err = ours.Use("sha256:../../etc")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestNothingIsRemovedThatIsBeingMade(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir, "a"), open(t, dir, "b")
	archive := filepath.Join(t.TempDir(), "a.tar")
	assert.NilError(t, os.WriteFile(archive, tarOf(t, map[string]string{"usr/bin/bash": "1"}), 0o600))
	var collected []error
	image, err := s.Build(t.Context(), sdk.BuildTemplateRequest{Name: "t", Rootfs: archive}, imagestore.Tools{}, func(sdk.TemplateProgress) error {
		collected = append(collected, other.Collect())
		return nil
	})
	assert.NilError(t, err)
	assert.Assert(t, len(collected) > 1 && !slices.ContainsFunc(collected, func(err error) bool { return err != nil }), "%v", collected)
	_, err = os.Stat(filepath.Join(image.Rootfs(), "usr/bin/bash"))
	assert.NilError(t, err)
}

func TestABuildEndsWithItsCaller(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	archive := filepath.Join(t.TempDir(), "a.tar")
	assert.NilError(t, os.WriteFile(archive, tarOf(t, map[string]string{"usr/bin/bash": "1"}), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Build(ctx, sdk.BuildTemplateRequest{Name: "t", Rootfs: archive}, imagestore.Tools{}, func(p sdk.TemplateProgress) error {
		if p.Step == "layer 1 of 1" {
			cancel()
		}
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
	refused := errors.New("nobody listens")
	_, err = s.Build(t.Context(), sdk.BuildTemplateRequest{Name: "t", Rootfs: archive}, imagestore.Tools{}, func(sdk.TemplateProgress) error { return refused })
	assert.ErrorIs(t, err, refused)
}
