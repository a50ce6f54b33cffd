package imagestore_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/imagestore"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// fileOf writes a Dockerfile with a context.
func fileOf(t testing.TB, text string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		assert.NilError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o755))
	}
	path := filepath.Join(dir, "Dockerfile")
	assert.NilError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// runs answers RUNs with archives, which their commands name.
type runs struct {
	archives map[string][]byte
	ran      []string
}

func (r *runs) run(_ context.Context, of imagestore.Running) (io.ReadCloser, error) {
	command := of.Argv[len(of.Argv)-1]
	r.ran = append(r.ran, command)
	return io.NopCloser(bytes.NewReader(r.archives[command])), nil
}

func buildFile(t testing.TB, s *imagestore.Store, r *runs, req sdk.BuildTemplateRequest) (*imagestore.Image, error) {
	t.Helper()
	req.Name = "t"
	return s.Build(t.Context(), req, imagestore.Tools{Run: r.run}, func(sdk.TemplateProgress) error { return nil })
}

func entriesOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		assert.NilError(t, w.WriteHeader(&h))
	}
	assert.NilError(t, w.Close())
	return b.Bytes()
}

func TestLayersOfADockerfile(t *testing.T) {
	host := newRegistry(t)
	base := host.push(t, "base:1", imageOf(t, func(c *v1.ConfigFile) { c.Config.WorkingDir = "/work" }, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!", "etc/dir/a": "a"}))))
	s := open(t, t.TempDir(), "a")
	r := &runs{archives: map[string][]byte{
		"adds":    tarOf(t, map[string]string{"added": "by a run"}),
		"removes": entriesOf(t, tar.Header{Name: "etc/.wh.dir", Typeflag: tar.TypeReg}),
		"stage":   tarOf(t, map[string]string{"out/b": "from a stage", "other": "x"}),
	}}
	path := fileOf(t, "FROM "+base+" AS one\nRUN stage\nFROM "+base+"\nWORKDIR made\nCOPY c etc/dir ./\nCOPY x /usr\nRUN adds\nRUN removes\nCOPY --from=one /out /o\n", map[string]string{"c": "copied", "etc/dir/d": "deep", "x": "into"})
	image, err := buildFile(t, s, r, sdk.BuildTemplateRequest{Dockerfile: path})
	assert.NilError(t, err)
	for path, want := range map[string]string{
		"added": "by a run", "etc/dir/a": "none", "work/made/c": "copied", "work/made/d": "deep", "usr/x": "into", "o/b": "from a stage", "other": "none", "usr/bin/bash": "#!",
	} {
		assert.Check(t, is.Equal(read(t, image, path), want), path)
	}
	assert.Check(t, is.Equal(image.Env["GREETING"], "hello"))
	assert.DeepEqual(t, r.ran, []string{"adds", "removes", "stage"})

	// The registry has another image of that name: what is pinned is built of the first, whatever else is asked for.
	host.push(t, "base:1", imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!2"}))))
	again, err := buildFile(t, s, r, sdk.BuildTemplateRequest{Dockerfile: path, Source: image.Source, MemoryMB: 100})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(read(t, again, "usr/bin/bash"), "#!"))
	assert.Check(t, is.Len(r.ran, 3))
	anew, err := buildFile(t, s, r, sdk.BuildTemplateRequest{Dockerfile: path})
	assert.NilError(t, err)
	assert.Check(t, anew.Source != image.Source)
	assert.Check(t, is.Equal(read(t, anew, "usr/bin/bash"), "#!2"))
	assert.Check(t, is.Len(r.ran, 6))
}

func TestWhatOneTemplateHasFetchedIsNotAnothers(t *testing.T) {
	host := newRegistry(t)
	base := host.push(t, "base:1", imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!"}))))
	dir := t.TempDir()
	s := open(t, dir, "a")
	r := &runs{archives: map[string][]byte{"fetch": tarOf(t, map[string]string{"x": "x"})}}
	path := fileOf(t, "FROM "+base+"\nRUN fetch\n", nil)
	policy := func(host, secret string) *sdk.NetworkPolicy {
		return &sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: host}}, Secrets: []sdk.NetworkSecret{{Name: "s", Value: secret, Hosts: []string{host}}}}
	}
	for n, test := range []struct {
		network *sdk.NetworkPolicy
		ran     int
	}{{nil, 1}, {policy("a", "one"), 2}, {nil, 2}, {policy("a", "another"), 2}, {policy("b", "one"), 3}} {
		_, err := buildFile(t, s, r, sdk.BuildTemplateRequest{Dockerfile: path, Network: test.network})
		assert.NilError(t, err)
		assert.Check(t, is.Len(r.ran, test.ran), "%d", n)
	}
	records, err := filepath.Glob(filepath.Join(dir, "images", "*", "record.json"))
	assert.NilError(t, err)
	for _, record := range records {
		text, err := os.ReadFile(record)
		assert.NilError(t, err)
		assert.Check(t, !strings.Contains(string(text), "another"))
	}
}

// TestWhatARunSaysIsThatOfAStranger has a sandbox that was taken over answer.
func TestWhatARunSaysIsThatOfAStranger(t *testing.T) {
	host := newRegistry(t)
	base := host.push(t, "base:1", imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!"}))))
	long := strings.Repeat("d/", 200)
	for name, test := range map[string]struct {
		archive []byte
		says    string // "" for what is built, without harm
	}{
		"a name that leads out":    {entriesOf(t, tar.Header{Name: "../../etc/cron.d/x", Typeflag: tar.TypeReg}), "leaves the root"},
		"a link through a link":    {entriesOf(t, tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, tar.Header{Name: "out/x", Typeflag: tar.TypeDir}), ""},
		"a hard link to elsewhere": {entriesOf(t, tar.Header{Name: "x", Typeflag: tar.TypeLink, Linkname: "/etc/shadow"}), "is no file of the image"},
		"a hard link that climbs":  {entriesOf(t, tar.Header{Name: "x", Typeflag: tar.TypeLink, Linkname: "../../../etc/shadow"}), "leaves the root"},
		"a device":                 {entriesOf(t, tar.Header{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8}), ""},
		"it removes all":           {entriesOf(t, tar.Header{Name: ".wh..wh..opq", Typeflag: tar.TypeReg}), "has no python3, node or bash"},
		"deeper than there is":     {entriesOf(t, tar.Header{Name: long + "x", Typeflag: tar.TypeReg}), "deep"},
		"no archive":               {bytes.Repeat([]byte("x"), 2000), "no proper tar archive"},
		"the root as a file":       {entriesOf(t, tar.Header{Name: ".", Typeflag: tar.TypeReg}), "root"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), "a")
			path := fileOf(t, "FROM "+base+"\nRUN it\n", nil)
			image, err := buildFile(t, s, &runs{archives: map[string][]byte{"it": test.archive}}, sdk.BuildTemplateRequest{Dockerfile: path})
			if test.says != "" {
				assert.ErrorContains(t, err, test.says)
				assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidRequest)
				return
			}
			assert.NilError(t, err)
			_, err = os.Lstat(filepath.Join(image.Rootfs(), "sda"))
			assert.Check(t, errors.Is(err, os.ErrNotExist))
			_, err = os.Lstat("/etc/x")
			assert.Check(t, errors.Is(err, os.ErrNotExist))
		})
	}
}

func TestADockerfileThatCannotBeBuiltSaysWhy(t *testing.T) {
	host := newRegistry(t)
	base := host.push(t, "base:1", imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!"}))))
	triggers := host.push(t, "triggers:1", imageOf(t, func(c *v1.ConfigFile) { c.Config.OnBuild = []string{"RUN x"} }, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!"}))))
	s := open(t, t.TempDir(), "a")
	for name, test := range map[string]struct{ text, says string }{
		"an instruction":        {"FROM " + base + "\nRUN first\nONBUILD x\n", "line 3: ONBUILD is not supported"},
		"no file":               {"FROM " + base + "\nRUN first\nCOPY lacking /x\n", `line 3: there is no "lacking" to copy`},
		"an unknown image":      {"FROM " + host.host + "/lacking:1\n", "line 1: the registry has no image"},
		"no image":              {"FROM " + base + "\nFROM UPPER::\n", "line 2: is no name of an image"},
		"an image with ONBUILD": {"FROM " + triggers + "\n", "ONBUILD"},
		"no program":            {"FROM scratch\nCOPY a /a\n", "has no python3, node or bash"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &runs{}
			_, err := buildFile(t, s, r, sdk.BuildTemplateRequest{Dockerfile: fileOf(t, test.text, map[string]string{"a": "a"})})
			assert.ErrorContains(t, err, test.says)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidRequest)
			e, coded := errors.AsType[*sdk.Error](err)
			assert.Assert(t, coded)
			assert.Check(t, is.Equal(e.Field, "dockerfile"))
			assert.Check(t, is.Len(r.ran, 0), "nothing is run of what cannot be built")
		})
	}
	for name, req := range map[string]sdk.BuildTemplateRequest{
		"no Dockerfile":            {Dockerfile: filepath.Join(t.TempDir(), "Dockerfile")},
		"a directory":              {Dockerfile: t.TempDir()},
		"no context":               {Dockerfile: fileOf(t, "FROM "+base, nil), Context: filepath.Join(t.TempDir(), "lacking")},
		"a file for a context":     {Dockerfile: fileOf(t, "FROM "+base, nil), Context: fileOf(t, "x", nil)},
		"something without an end": {Dockerfile: "/dev/zero"},
	} {
		_, err := buildFile(t, s, &runs{}, req)
		assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeInvalidRequest), "%s: %v", name, err)
	}
}

func TestLayersOfFailedBuildsAreKeptForADay(t *testing.T) {
	host := newRegistry(t)
	base := host.push(t, "base:1", imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!"}))))
	dir := t.TempDir()
	s := open(t, dir, "a")
	r := &runs{archives: map[string][]byte{"good": tarOf(t, map[string]string{"x": "x"}), "bad": []byte("x")}}
	path := fileOf(t, "FROM "+base+"\nRUN good\nRUN bad\n", nil)
	for range 2 {
		_, err := buildFile(t, s, r, sdk.BuildTemplateRequest{Dockerfile: path})
		assert.Assert(t, err != nil)
		assert.NilError(t, s.Collect())
	}
	assert.DeepEqual(t, r.ran, []string{"good", "bad", "bad"})
	assert.Check(t, is.Equal(host.blobs.Load(), int64(3)), "one layer, and two configurations")

	long := time.Now().Add(-25 * time.Hour)
	steps, err := filepath.Glob(filepath.Join(dir, "steps", "*"))
	assert.NilError(t, err)
	for _, step := range steps {
		assert.NilError(t, os.Chtimes(step, long, long))
	}
	assert.NilError(t, s.Collect())
	for _, name := range []string{"steps", "layers", "digests", "scratch"} {
		left, err := os.ReadDir(filepath.Join(dir, name))
		assert.NilError(t, err)
		assert.Check(t, is.Len(left, 0), name)
	}
}
