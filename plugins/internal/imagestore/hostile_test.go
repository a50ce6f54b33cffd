package imagestore_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/imagestore"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/layers"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// contacted counts who connects to a port of this machine.
func contacted(t testing.TB) (port string, count *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	count = &atomic.Int64{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	_, port, err = net.SplitHostPort(listener.Addr().String())
	assert.NilError(t, err)
	return port, count
}

func TestARegistryLeadsToNothingInside(t *testing.T) {
	port, count := contacted(t)
	for name, answer := range map[string]http.HandlerFunc{
		"a redirect over HTTP": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://127.0.0.1:"+port+"/latest/meta-data", http.StatusFound)
		},
		"a redirect over HTTP to a name": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://registry.invalid/", http.StatusFound)
		},
		"a redirect over HTTPS to a name that is inside": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "https://localhost:"+port+"/", http.StatusFound)
		},
		"where a token is to be had": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Www-Authenticate", `Bearer realm="https://localhost:`+port+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"a circle": func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/v2/" {
				http.Redirect(w, req, req.URL.Path+"x", http.StatusFound)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			_, _, err := build(t, open(t, t.TempDir(), "a"), sdk.BuildTemplateRequest{From: strings.TrimPrefix(server.URL, "http://") + "/x:1"})
			assert.ErrorContains(t, err, "leads")
			assert.Equal(t, count.Load(), int64(0))
		})
	}
}

func TestWhatAnImageSaysOfItselfIsBounded(t *testing.T) {
	image := imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!"})))
	raw, err := image.RawManifest()
	assert.NilError(t, err)
	with := func(change func(*v1.Manifest)) []byte {
		manifest, err := v1.ParseManifest(bytes.NewReader(raw))
		assert.NilError(t, err)
		change(manifest)
		text, err := json.Marshal(manifest)
		assert.NilError(t, err)
		return text
	}
	for name, c := range map[string]struct {
		manifest []byte
		want     string
	}{
		"a configuration of a terabyte":     {with(func(m *v1.Manifest) { m.Config.Size = 1 << 40 }), "the configuration of the image has more than"},
		"a configuration of any size":       {with(func(m *v1.Manifest) { m.Config.Size = -1 }), "the configuration of the image has more than"},
		"a manifest that is too large":      {with(func(m *v1.Manifest) { m.Annotations = map[string]string{"x": strings.Repeat("x", 5<<20)} }), "its manifest has more than"},
		"many layers":                       {with(func(m *v1.Manifest) { m.Layers = slices.Repeat(m.Layers, 300) }), "more than 256 layers"},
		"a layer of any size":               {with(func(m *v1.Manifest) { m.Layers[0].Size = -1 }), "its layers are too large"},
		"a layer of more than there may be": {with(func(m *v1.Manifest) { m.Layers[0].Size = 1 << 40 }), "its layers are too large"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				switch {
				case strings.Contains(req.URL.Path, "/manifests/"):
					w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
					_, _ = w.Write(c.manifest)
				case strings.Contains(req.URL.Path, "/blobs/"):
					config, err := image.RawConfigFile()
					assert.Check(t, err)
					_, _ = w.Write(config)
				}
			}))
			defer server.Close()
			_, _, err := build(t, open(t, t.TempDir(), "a"), sdk.BuildTemplateRequest{From: strings.TrimPrefix(server.URL, "http://") + "/x:1"})
			assert.ErrorContains(t, err, c.want)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidRequest)
		})
	}
}

func TestWhatAFileSaysOfItsImageIsBounded(t *testing.T) {
	image := imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!"})))
	manifest, err := image.Manifest()
	assert.NilError(t, err)
	digest, err := image.Digest()
	assert.NilError(t, err)
	oci := func(change func(path string)) string {
		dir := t.TempDir()
		path, err := layout.Write(dir, empty.Index)
		assert.NilError(t, err)
		assert.NilError(t, path.AppendImage(image))
		change(dir)
		return dir
	}
	endless := func(path string) {
		assert.NilError(t, os.RemoveAll(path))
		assert.NilError(t, os.Symlink("/dev/zero", path))
	}
	saved := func(config int) string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		text := `[{"Config":"config.json","Layers":[]}]`
		assert.NilError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "manifest.json", Size: int64(len(text))}))
		_, err := io.WriteString(w, text)
		assert.NilError(t, err)
		assert.NilError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./config.json", Size: int64(config)}))
		_, err = w.Write(make([]byte, config))
		assert.NilError(t, err)
		assert.NilError(t, w.Close())
		path := filepath.Join(t.TempDir(), "saved.tar")
		assert.NilError(t, os.WriteFile(path, b.Bytes(), 0o600))
		return path
	}
	blob := func(dir string, of v1.Hash) string { return filepath.Join(dir, "blobs", of.Algorithm, of.Hex) }
	for name, c := range map[string]struct{ path, want string }{
		"an index that has no end":          {oci(func(dir string) { endless(filepath.Join(dir, "index.json")) }), "is no file of at most"},
		"a manifest that has no end":        {oci(func(dir string) { endless(blob(dir, digest)) }), "is no file of at most"},
		"a configuration that is too large": {oci(func(dir string) { assert.NilError(t, os.Truncate(blob(dir, manifest.Config.Digest), 9<<20)) }), "is no file of at most"},
		"another configuration": {oci(func(dir string) {
			assert.NilError(t, os.WriteFile(blob(dir, manifest.Config.Digest), []byte("{}"), 0o600))
		}), "is not the one that its manifest names"},
		"a saved one that is much of its own": {saved(9 << 20), "is no file of at most"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := build(t, open(t, t.TempDir(), "a"), sdk.BuildTemplateRequest{Rootfs: c.path})
			assert.ErrorContains(t, err, c.want)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidRequest)
		})
	}
}

func TestLayersOfAnImageShareItsLimits(t *testing.T) {
	r := newRegistry(t)
	var all []v1.Layer
	for i := range 4 {
		all = append(all, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!", fmt.Sprint(i): strings.Repeat("x", 4000)})))
	}
	three, four := r.push(t, "three", imageOf(t, nil, all[:3]...)), r.push(t, "four", imageOf(t, nil, all...))
	s, err := imagestore.Open(imagestore.Options{Dir: t.TempDir(), Owner: "a", Limits: layers.Limits{Entries: 100, Bytes: 24 << 10, Names: 1 << 10}})
	assert.NilError(t, err)
	for range 2 { // whether they are here or not
		_, _, err = build(t, s, sdk.BuildTemplateRequest{From: three})
		assert.NilError(t, err)
		_, _, err = build(t, s, sdk.BuildTemplateRequest{From: four})
		assert.ErrorContains(t, err, "layer 4 of 4: the layer has more than")
	}
	twice := r.push(t, "twice", imageOf(t, nil, all[0], all[0], all[0], all[0]))
	_, _, err = build(t, s, sdk.BuildTemplateRequest{From: twice})
	assert.ErrorContains(t, err, "the image has more than it may have")
}

// TestNobodyGetsALayerByItsSum has an image name a layer that it does not have.
func TestNobodyGetsALayerByItsSum(t *testing.T) {
	secret := layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!", "etc/secret": "s"}))
	diffID, err := secret.DiffID()
	assert.NilError(t, err)
	s := open(t, t.TempDir(), "a")
	r := newRegistry(t)
	_, _, err = build(t, s, sdk.BuildTemplateRequest{From: r.push(t, "ours", imageOf(t, nil, secret))})
	assert.NilError(t, err)

	decoy := layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!"}))
	named := func(c *v1.ConfigFile) { c.RootFS.DiffIDs = []v1.Hash{diffID} }
	_, _, err = build(t, s, sdk.BuildTemplateRequest{From: r.push(t, "theirs", imageOf(t, named, decoy))})
	assert.ErrorContains(t, err, "it is not what the image names")

	// Neither from a registry that says to have it, and does not.
	other := newRegistry(t)
	ref := other.push(t, "x", imageOf(t, nil, secret))
	other.gone.Store(true)
	_, _, err = build(t, s, sdk.BuildTemplateRequest{From: ref})
	assert.Assert(t, err != nil)
	other.gone.Store(false)
	_, _, err = build(t, s, sdk.BuildTemplateRequest{From: ref})
	assert.NilError(t, err)
}
