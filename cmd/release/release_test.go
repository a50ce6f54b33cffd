package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

const epoch = "1790000000"

func TestVersionsOfPackagesFollowTheOrderOfCommits(t *testing.T) {
	at := time.Date(2026, 11, 27, 6, 25, 36, 0, time.UTC)
	for described, want := range map[string]string{
		"v1.2.3":                "1.2.3",
		"1.2":                   "1.2",
		"v1.2.3-dirty":          "1.2.3+dirty",
		"v1.2.3-4-g0a623f33":    "1.2.3+4.g0a623f33",
		"v1.2.3-4-gabc-dirty":   "1.2.3+4.gabc.dirty",
		"v2.0.0-rc1":            "2.0.0~rc1",
		"v2.0.0-rc.1-2-gabcdef": "2.0.0~rc.1+2.gabcdef",
		"0a623f33":              "0.0.0+20261127062536.g0a623f33",
		"0a623f33-dirty":        "0.0.0+20261127062536.g0a623f33.dirty",
	} {
		got, err := versionOf(described, at)
		assert.NilError(t, err)
		assert.Check(t, is.Equal(got, want))
	}
	for _, described := range []string{"", "unknown", "v", "main", "v1.2.3 4", "1.2.3-4-gxyz"} {
		_, err := versionOf(described, at)
		assert.Check(t, is.ErrorContains(err, "is none that git describes"), described)
	}
	dpkg, err := exec.LookPath("dpkg")
	if err != nil {
		missing(t, "dpkg, which knows the order, is not here")
	}
	ordered := []string{"0a623f33", "v0.0.1", "v1.2.3-rc1", "v1.2.3", "v1.2.3-4-gabc", "v1.2.3-11-gabc", "v1.2.4"}
	for i, described := range ordered[1:] {
		older, err := versionOf(ordered[i], at)
		assert.NilError(t, err)
		newer, err := versionOf(described, at)
		assert.NilError(t, err)
		assert.Check(t, exec.Command(dpkg, "--compare-versions", older, "lt", newer).Run(), "%s and %s", older, newer)
	}
}

// missing skips a test for a person, and fails in CI, which has everything.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// built is a directory with programs in the places of a release: all are one small program,
// the packing of which is no other than that of the real ones.
func built(t *testing.T) string {
	t.Helper()
	source, dir := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.com/program\n\ngo 1.26.0\n",
		"main.go": "package main\n\nfunc main() { println(\"hello\") }\n",
	} {
		assert.NilError(t, os.WriteFile(filepath.Join(source, name), []byte(text), 0o644))
	}
	program := filepath.Join(dir, "program")
	compile := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, ".")
	compile.Dir = source
	out, err := compile.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	for _, name := range programs {
		path := filepath.Join(dir, name)
		assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NilError(t, os.Link(program, path))
	}
	return dir
}

// released makes a release of programs and returns its directory.
func released(t *testing.T, bin string) string {
	t.Helper()
	out := t.TempDir()
	assert.NilError(t, run([]string{"-bin", bin, "-out", out, "-epoch", epoch, "-arch", "amd64", "-version", "v1.2.3", "all"}))
	return out
}

// tree has the content of all files below a directory, and links as what they lead to.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	assert.NilError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		assert.NilError(t, err)
		if entry.Type()&fs.ModeSymlink != 0 {
			files[name], err = os.Readlink(path)
			return err
		}
		content, err := os.ReadFile(path)
		files[name] = string(content)
		return err
	}))
	return files
}

func TestAReleaseIsTheSameWheneverItIsMade(t *testing.T) {
	bin := built(t)
	first := tree(t, released(t, bin))
	now := time.Now().Add(time.Hour)
	for _, name := range programs {
		assert.NilError(t, os.Chtimes(filepath.Join(bin, name), now, now))
	}
	second := tree(t, released(t, bin))
	assert.Check(t, is.DeepEqual(sorted(first), sorted(second)))
	for name, content := range first {
		assert.Check(t, content == second[name], "%s differs", name)
	}
	names := slices.DeleteFunc(sorted(first), func(name string) bool { return strings.Contains(name, "/") })
	assert.DeepEqual(t, names, []string{
		"SHA256SUMS",
		"sandbox-broker-plugin-aliyun_1.2.3_amd64.deb", "sandbox-broker-plugin-daytona_1.2.3_amd64.deb", "sandbox-broker-plugin-e2b_1.2.3_amd64.deb",
		"sandbox-broker-plugin-kubernetes_1.2.3_amd64.deb", "sandbox-broker-plugin-self-managed_1.2.3_amd64.deb",
		"sandbox-broker_1.2.3_amd64.deb",
		"sandbox-broker_1.2.3_linux_amd64.aliyun.cdx.json", "sandbox-broker_1.2.3_linux_amd64.daytona.cdx.json", "sandbox-broker_1.2.3_linux_amd64.e2b.cdx.json",
		"sandbox-broker_1.2.3_linux_amd64.gvisor-sentry-prewarmer.cdx.json", "sandbox-broker_1.2.3_linux_amd64.kubernetes.cdx.json", "sandbox-broker_1.2.3_linux_amd64.runsc.cdx.json",
		"sandbox-broker_1.2.3_linux_amd64.sandbox-broker.cdx.json", "sandbox-broker_1.2.3_linux_amd64.sandbox-guest.cdx.json", "sandbox-broker_1.2.3_linux_amd64.self_managed.cdx.json",
		"sandbox-broker_1.2.3_linux_amd64.tar.gz",
	})
	assert.Equal(t, strings.Count(first["SHA256SUMS"], "\n"), len(names)-1)
}

// The real thing, of which one program is enough: what a compiler is told of directories and
// of the repository would be in all of them.
func TestAProgramIsTheSameWhereverItIsBuilt(t *testing.T) {
	root, err := filepath.Abs("../..")
	assert.NilError(t, err)
	list := exec.Command("git", "ls-files", "-z", "*.go", "go.mod", "go.sum", "*.json", "*.txt", "*.py", "*.js", "*.html", "*.css", "*.pem", "*.proto")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Skip("this is no clone: git cannot say which files belong to it")
	}
	elsewhere := t.TempDir()
	for _, name := range strings.Split(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed here, and not committed yet
		}
		assert.NilError(t, err)
		to := filepath.Join(elsewhere, name)
		assert.NilError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		assert.NilError(t, os.WriteFile(to, content, 0o644))
	}
	programs := map[string][]byte{}
	for _, dir := range []string{root, elsewhere} {
		to := filepath.Join(t.TempDir(), "prewarmer")
		compile := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", to, "./cmd/gvisor-sentry-prewarmer")
		compile.Dir, compile.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
		out, err := compile.CombinedOutput()
		assert.NilError(t, err, "%s", out)
		programs[dir], err = os.ReadFile(to)
		assert.NilError(t, err)
	}
	assert.Check(t, bytes.Equal(programs[root], programs[elsewhere]))
	assert.Check(t, !bytes.Contains(programs[root], []byte(root)), "the program names a directory of this machine")
}

func TestTheTarballHasWhatMakeHasBuilt(t *testing.T) {
	out := released(t, built(t))
	file, err := os.Open(filepath.Join(out, "sandbox-broker_1.2.3_linux_amd64.tar.gz"))
	assert.NilError(t, err)
	defer file.Close()
	zip, err := gzip.NewReader(file)
	assert.NilError(t, err)
	var names []string
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		assert.NilError(t, err)
		name, ok := strings.CutPrefix(header.Name, "sandbox-broker_1.2.3_linux_amd64/")
		assert.Assert(t, ok, header.Name)
		assert.Check(t, header.Uid == 0 && header.Gid == 0 && header.ModTime.Unix() == 1790000000, "%+v", header)
		if strings.HasPrefix(name, "bin/") {
			assert.Check(t, header.Mode&0o111 == 0o111, "%+v", header)
		}
		names = append(names, name)
	}
	assert.DeepEqual(t, names, []string{
		"LICENSE", "NOTICES", "bin/gvisor-bin/gvisor-sentry-prewarmer", "bin/gvisor-bin/gvisor_sentry", "bin/plugins/aliyun", "bin/plugins/daytona", "bin/plugins/e2b",
		"bin/plugins/kubernetes", "bin/plugins/self_managed", "bin/runsc", "bin/sandbox-broker", "bin/sandbox-guest", "sandbox.hcl",
	})
}

// The broker of this repository, whose modules are known, if it is built.
func TestTheListOfAProgramHasItsModules(t *testing.T) {
	r := release{bin: "../../bin", version: "1.2.3", arch: "amd64", time: time.Unix(1790000000, 0).UTC()}
	if _, err := os.Stat(filepath.Join(r.bin, "sandbox-broker")); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the binaries are not built: run `make build` first")
		}
		missing(t, "the binaries are not built: run `make build` first")
	}
	content, err := r.bom("self-managed", []string{"plugins/self_managed", "sandbox-guest"})
	assert.NilError(t, err)
	assert.Check(t, json.Valid(content))
	var got cdx.BOM
	assert.NilError(t, cdx.NewBOMDecoder(bytes.NewReader(content), cdx.BOMFileFormatJSON).Decode(&got))
	assert.Equal(t, got.SpecVersion, cdx.SpecVersion1_6)
	refs := map[string]int{}
	modules := map[string]string{}
	for _, c := range *got.Components {
		refs[c.BOMRef]++
		modules[c.Name] = c.Version
	}
	for ref, n := range refs {
		assert.Check(t, n == 1, "%s stands there %d times", ref, n)
	}
	for _, name := range []string{"self_managed", "sandbox-guest", "google.golang.org/grpc", "github.com/docker/docker", "std"} {
		_, ok := modules[name]
		assert.Check(t, ok, "%s is missing", name)
	}
	_, ok := modules["github.com/gofiber/fiber/v2"]
	assert.Check(t, !ok, "only the broker has that")
	for _, d := range *got.Dependencies {
		if d.Dependencies == nil {
			continue
		}
		for _, ref := range *d.Dependencies {
			assert.Check(t, refs[ref] == 1, "%s depends on %s, which is not listed", d.Ref, ref)
		}
	}
}

// Of gVisor too, which is a module itself.
func TestTheLicensesOfAllModulesArePassedOn(t *testing.T) {
	bin := "../../bin"
	if _, err := os.Stat(filepath.Join(bin, "gvisor-bin", "gvisor-sentry-prewarmer")); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the binaries are not built: run `make build own-runsc` first")
		}
		missing(t, "the binaries are not built: run `make build own-runsc` first")
	}
	r := release{bin: bin}
	notices, err := r.notices(programs)
	assert.NilError(t, err)
	for _, want := range []string{"Go and its standard library\n", "gvisor.dev/gvisor@v0", "google.golang.org/grpc@v", "github.com/gofiber/fiber/v2@v", "k8s.io/client-go@v", "Redistributions in binary form must reproduce"} {
		assert.Check(t, bytes.Contains(notices, []byte(want)), want)
	}
	assert.Check(t, !bytes.Contains(notices, []byte(own+"@")))
	again, err := r.notices(programs)
	assert.NilError(t, err)
	assert.Check(t, bytes.Equal(notices, again))
}

func TestWhatCannotBeMadeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no time":              {[]string{"-epoch", "", "-version", "v1.2.3", "packages"}, "must be a number of seconds"},
		"no version":           {[]string{"-epoch", epoch, "packages"}, "none that git describes"},
		"nothing to make":      {[]string{"-epoch", epoch, "-version", "v1.2.3"}, "say what to make"},
		"programs not built":   {[]string{"-epoch", epoch, "-version", "v1.2.3", "-bin", t.TempDir(), "packages"}, "no such file"},
		"something else there": {[]string{"-epoch", epoch, "-version", "v1.2.3", "everything"}, "say what to make"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(append([]string{"-out", t.TempDir()}, c.args...))
			assert.ErrorContains(t, err, c.want)
		})
	}
}

// Those who hold the keys of a provider's cloud are reached over HTTPS.
func TestAnImageTrustsTheAuthoritiesOfMozilla(t *testing.T) {
	certificates := authorities()
	assert.Check(t, bytes.Count(certificates, []byte("BEGIN CERTIFICATE")) > 100)
}
