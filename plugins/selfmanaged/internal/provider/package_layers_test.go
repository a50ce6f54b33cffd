package provider

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/packageindex"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/packages"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// countedIndex counts how often files are fetched from it.
type countedIndex struct {
	*packageindex.Index
	t       *testing.T
	fetched atomic.Int64
}

func startCounted(t *testing.T) *countedIndex {
	t.Helper()
	return &countedIndex{Index: packageindex.Start(t), t: t}
}

// addWheel is AddWheel for a package that is counted, of which before is called first.
func (i *countedIndex) addWheel(name, module string, before func()) {
	i.t.Helper()
	file, content := packageindex.Wheel(i.t, name, "1.0", module)
	i.Link(name, "/counted/"+file)
	i.Handle("/counted/"+file, func(w http.ResponseWriter, _ *http.Request) {
		i.fetched.Add(1)
		if before != nil {
			before()
		}
		_, _ = w.Write(content)
	})
}

// ofTenant makes an instance of a tenant.
func ofTenant(t *testing.T, p testProvider, tenant string) string {
	t.Helper()
	i, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, Labels: map[string]string{sdk.LabelTenant: tenant}})
	assert.NilError(t, err)
	return i.ID
}

func TestRequirementsAreInstalledOnceForAllInstances(t *testing.T) {
	tier.Full(t)
	index := startCounted(t)
	index.addWheel("first", "def hello(): return 'hello from first'", nil)
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	one, two := ofTenant(t, p, "acme"), ofTenant(t, p, "umbrella")
	installed, err := install(t, p, one, "first")
	succeeded(t, installed, err)
	again, err := install(t, p, two, "First", "first")
	succeeded(t, again, err)
	assert.Equal(t, index.fetched.Load(), int64(1))
	assert.Check(t, is.Contains(again.stdout, "Successfully installed first-1.0"))
	assert.Equal(t, again.stdout, installed.stdout, "the installer's words are the same")
	for _, id := range []string{one, two} {
		assert.Equal(t, run(t, p, id, sdk.Python, "import first; print(first.hello())").stdout, "hello from first\n")
		assert.Equal(t, newContext(t, p, id, sdk.Python).run("import first; print(first.hello())").stdout, "hello from first\n")
		assert.Check(t, is.Contains(run(t, p, id, sdk.Bash, "pip list 2>/dev/null").stdout, "first"))
		assert.Equal(t, run(t, p, id, sdk.Bash, "ls -A /tmp").stdout, "")
	}
	// Another set is another layer.
	got, err := install(t, p, two, "first==1.0")
	succeeded(t, got, err)
	assert.Equal(t, index.fetched.Load(), int64(2))
}

func TestLayersOutliveTheProviderAndAreOfTheirSourcesAlone(t *testing.T) {
	tier.Full(t)
	here, there := startCounted(t), startCounted(t)
	here.addWheel("first", "where = 'here'", nil)
	there.addWheel("first", "where = 'there'", nil)
	dir := filepath.Join(scratch.Dir(t), "p")
	assert.NilError(t, os.Mkdir(dir, 0o700))
	where := func(index *countedIndex, more map[string]any) string {
		t.Helper()
		given := map[string]any{"packages": "on", "package_index": index.Simple()}
		for name, value := range more {
			given[name] = value
		}
		p := testProvider{configured(t, dir, "test"+newID(), given), dir, ""}
		defer func() { assert.Check(t, p.Close(t.Context())) }()
		id := create(t, p, templatePython)
		got, err := install(t, p, id, "first")
		succeeded(t, got, err)
		return run(t, p, id, sdk.Python, "import first; print(first.where)").stdout
	}
	assert.Equal(t, where(here, nil), "here\n")
	assert.Equal(t, where(here, nil), "here\n")
	assert.Equal(t, here.fetched.Load(), int64(1), "the layer is there for the next process")
	assert.Equal(t, where(there, nil), "there\n", "what came from another index is another layer")
	assert.Equal(t, where(here, map[string]any{"package_hosts": []any{"files.example.com"}}), "here\n")
	assert.Equal(t, here.fetched.Load(), int64(2), "so it is where others hosts may be reached")
	assert.Equal(t, where(here, map[string]any{"package_layers_mb": 0}), "here\n")
	assert.Equal(t, here.fetched.Load(), int64(3))

	// What the operator has turned off is off, whatever there is.
	p := testProvider{configured(t, dir, "test"+newID(), map[string]any{"package_index": here.Simple()}), dir, ""}
	defer func() { assert.Check(t, p.Close(t.Context())) }()
	id := create(t, p, templatePython)
	_, err := install(t, p, id, "first")
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
	assert.Check(t, is.Contains(run(t, p, id, sdk.Bash, "ls "+packageLayersDir).stderr, "No such file"))
}

// poison is what code tries to have other instances run its own module. It prints what has
// worked of what must not.
const poison = `
import os, shutil, sys
target, seen = '/workspace/.packages/python', '` + packageLayersDir + `'
def attempt(what, f):
    try: f()
    except OSError: return
    print(what)
def write(path):
    with open(path, 'w') as f: f.write('value = "poison"')
os.makedirs(target, exist_ok=True)
layers = {os.path.dirname(os.readlink(os.path.join(target, n))) for n in os.listdir(target) if os.path.islink(os.path.join(target, n))}
attempt('list', lambda: os.listdir(seen))
attempt('make', lambda: os.mkdir(seen + '/' + 64 * '0'))
attempt('make', lambda: write(seen + '/first.py'))
attempt('mode of all', lambda: os.chmod(seen, 0o777))
for layer in layers:
    attempt('write', lambda: write(layer + '/first.py'))
    attempt('append', lambda: os.close(os.open(layer + '/first.py', os.O_WRONLY | os.O_APPEND)))
    attempt('add', lambda: write(layer + '/sitecustomize.py'))
    attempt('remove', lambda: os.remove(layer + '/first.py'))
    attempt('rename', lambda: os.rename(layer + '/first.py', layer + '/second.py'))
    attempt('mode', lambda: os.chmod(layer + '/first.py', 0o666))
    attempt('time', lambda: os.utime(layer + '/first.py', (0, 0)))
    attempt('owner', lambda: os.chown(layer + '/first.py', 1000, 1000))
    attempt('truncate', lambda: os.truncate(layer + '/first.py', 0))
    attempt('link', lambda: os.link(layer + '/first.py', target + '/hard.py'))
    attempt('attribute', lambda: os.setxattr(layer + '/first.py', 'user.x', b'x'))
# Its own directory it may do with what it likes.
for name in ('first.py', 'sitecustomize.py', 'usercustomize.py', 'pip.py'):
    path = target + '/' + name
    if os.path.lexists(path): os.remove(path)
    write(path)
write('/workspace/first.py'); write('/workspace/sitecustomize.py')
print(len(layers), 'layers')
`

func TestWhatCodeDoesToItsPackagesIsNotAnothers(t *testing.T) {
	index := startCounted(t)
	index.addWheel("first", "value = 'good'", nil)
	index.addWheel("second", "value = 'good'", nil)
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	hostile := ofTenant(t, p, "mallory")
	// Before anything is installed: it is the first that wants the layer.
	assert.Equal(t, run(t, p, hostile, sdk.Python, poison).stdout, "0 layers\n")
	got, err := install(t, p, hostile, "first")
	succeeded(t, got, err)
	assert.Equal(t, run(t, p, hostile, sdk.Python, poison).stdout, "1 layers\n")
	assert.Equal(t, run(t, p, hostile, sdk.Python, "import first; print(first.value)").stdout, "poison\n", "it has what it has made itself")
	// And with what it has made in the way of the next layer.
	run(t, p, hostile, sdk.Bash, "rm -rf .packages/python; ln -s "+packageLayersDir+" .packages/python")
	got, err = install(t, p, hostile, "second")
	assert.NilError(t, err)
	assert.Check(t, got.Status != sdk.StatusSucceeded, got.stdout)

	victim := ofTenant(t, p, "acme")
	for _, name := range []string{"first", "second"} {
		got, err := install(t, p, victim, name)
		succeeded(t, got, err)
		assert.Equal(t, run(t, p, victim, sdk.Python, "import "+name+"; print("+name+".value)").stdout, "good\n")
	}
	assert.Equal(t, run(t, p, victim, sdk.Bash, "ls -A .packages/python | grep -v dist-info | sort").stdout, "__pycache__\nfirst.py\nsecond.py\n")
	assert.Equal(t, index.fetched.Load(), int64(2), "each was installed once, and nowhere but in a sandbox of its own")
}

func TestTheSecretsOfAnInstanceAreInNoLayer(t *testing.T) {
	index := startCounted(t)
	index.addWheel("first", "value = 1", nil)
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	i, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, Env: map[string]string{"TOKEN": "s3cret-of-acme", "PIP_INDEX_URL": "http://nowhere.invalid"}})
	assert.NilError(t, err)
	got, err := install(t, p, i.ID, "first")
	succeeded(t, got, err)
	var found int
	err = filepath.WalkDir(p.dir+"-keep", func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		assert.Check(t, !strings.Contains(string(text), "s3cret"), path)
		found++
		return err
	})
	assert.NilError(t, err)
	assert.Check(t, found > 2)
}

func TestOneLayerIsBuiltForAllWhoWantIt(t *testing.T) {
	tier.Full(t)
	index := startCounted(t)
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	index.addWheel("slow", "value = 1", func() { asked <- struct{}{}; <-answer })
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	hasty := create(t, p, templatePython)
	patient := []string{create(t, p, templatePython), create(t, p, templatePython), create(t, p, templatePython)}
	type ended struct {
		outcome
		err error
	}
	results := make(chan ended, len(patient))
	var all sync.WaitGroup
	for _, id := range patient {
		all.Go(func() {
			got, err := install(t, p, id, "slow")
			results <- ended{got, err}
		})
	}
	<-asked
	got, err := installWith(t, p, sdk.InstallPackagesRequest{InstanceID: hasty, Language: sdk.Python, Requirements: []string{"slow"}, Timeout: time.Second})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(got.Status, sdk.StatusTimeout), "who waits has a time limit of its own")
	assert.Check(t, strings.HasPrefix(got.stderr, packages.Failure), got.stderr)
	_, err = install(t, p, patient[0], "slow")
	assert.Check(t, is.ErrorIs(err, &sdk.Error{Code: sdk.CodeConflict}), "one at a time in an instance")
	close(answer)
	all.Wait()
	for range patient {
		got := <-results
		succeeded(t, got.outcome, got.err)
	}
	assert.Equal(t, index.fetched.Load(), int64(1))
	for _, id := range patient {
		assert.Equal(t, run(t, p, id, sdk.Python, "import slow; print(slow.value)").stdout, "1\n")
	}
}

// noise does not get smaller when it is packed.
func noise(bytes int) string {
	b := make([]byte, bytes/2)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

func TestWithoutALayerPackagesAreInstalledInTheInstance(t *testing.T) {
	tier.Full(t)
	index := startCounted(t)
	index.addWheel("small", "value = 1", nil)
	index.addWheel("large", fmt.Sprintf("value, noise = 2, %q", noise(2<<20)), nil)
	for name, test := range map[string]struct {
		given map[string]any
		of    string
	}{
		"no place for another sandbox": {map[string]any{"max_sandboxes": 1}, "small"},
		"more than all layers may be":  {map[string]any{"package_layers_mb": 1}, "large"},
	} {
		t.Run(name, func(t *testing.T) {
			given := map[string]any{"packages": "on", "package_index": index.Simple()}
			for name, value := range test.given {
				given[name] = value
			}
			p := newProvider(t, given)
			id := create(t, p, templatePython)
			got, err := install(t, p, id, test.of)
			succeeded(t, got, err)
			assert.Equal(t, run(t, p, id, sdk.Bash, "find .packages -type l").stdout, "")
			assert.Equal(t, run(t, p, id, sdk.Python, "import "+test.of+" as m; print(m.value > 0)").stdout, "True\n")
		})
	}
	t.Run("the store is a file", func(t *testing.T) {
		p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
		id := create(t, p, templatePython)
		layers := filepath.Join(p.dir+"-keep", "package-layers", "sets")
		assert.NilError(t, os.RemoveAll(layers))
		assert.NilError(t, os.WriteFile(layers, nil, 0o600))
		got, err := install(t, p, id, "small")
		succeeded(t, got, err)
		assert.Equal(t, run(t, p, id, sdk.Python, "import small; print(small.value)").stdout, "1\n")
	})
}

func TestALaterInstallationReplacesWhatCameFromALayer(t *testing.T) {
	tier.Full(t)
	index := packageindex.Start(t)
	link := func(files ...string) {
		index.Handle("/simple/changing/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			for _, file := range files {
				_, _ = fmt.Fprintf(w, `<a href="/all/%s">%s</a>`, file, file)
			}
		})
	}
	var files []string
	for version, module := range map[string]string{"1.0": "value = 1", "2.0": "value = 2", "3.0": fmt.Sprintf("value, noise = 3, %q", noise(2<<20))} {
		file, content := packageindex.Wheel(t, "changing", version, module)
		index.Handle("/all/"+file, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
		files = append(files, file)
	}
	link(files...)
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple(), "package_layers_mb": 1})
	id := create(t, p, templatePython)
	for _, step := range []struct {
		version string
		linked  bool
	}{{"1.0", true}, {"2.0", true}, {"3.0", false}, {"1.0", true}} { // 3.0 is larger than all layers may be
		got, err := install(t, p, id, "changing=="+step.version)
		succeeded(t, got, err)
		assert.Equal(t, run(t, p, id, sdk.Python, "import changing; print(changing.value)").stdout, step.version[:1]+"\n")
		link := run(t, p, id, sdk.Bash, "readlink .packages/python/changing.py").stdout
		assert.Check(t, is.Equal(strings.HasPrefix(link, packageLayersDir), step.linked), step.version)
	}
}

func TestCopiesHaveTheLayersOfTheirOriginal(t *testing.T) {
	tier.Full(t)
	index := startCounted(t)
	for _, name := range []string{"first", "second"} {
		index.addWheel(name, "value = 'from "+name+"'", nil)
	}
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	if p.snapshots == nil {
		binaries.Missing(t, "runsc makes checkpoints for root only")
	}
	id := create(t, p, templatePython)
	got, err := install(t, p, id, "first", "second")
	succeeded(t, got, err)
	c := newContext(t, p, id, sdk.Python)
	assert.Equal(t, c.run("import first; print(first.value)").stdout, "from first\n")

	secret := make([]byte, sdk.SnapshotKeyBytes)
	kept, err := p.Snapshot(t.Context(), sdk.SnapshotRequest{InstanceID: id, Key: secret})
	assert.NilError(t, err)
	transient, err := p.Snapshot(t.Context(), sdk.SnapshotRequest{InstanceID: id, Transient: true})
	assert.NilError(t, err)
	assert.NilError(t, p.Destroy(t.Context(), id))
	// Whatever becomes of the set, the layer stays as long as a copy may need it.
	sets, err := filepath.Glob(filepath.Join(p.dir+"-keep", "package-layers", "sets", "*.json"))
	assert.NilError(t, err)
	assert.Equal(t, len(sets), 1)
	assert.NilError(t, os.Remove(sets[0]))
	for name, source := range map[string]sdk.SnapshotSource{"kept": {ID: kept.ID, Key: secret}, "transient": {ID: transient.ID}} {
		t.Run(name, func(t *testing.T) {
			assert.NilError(t, p.layers.store.Collect())
			copied, err := p.Create(t.Context(), sdk.CreateRequest{Snapshot: &source})
			assert.NilError(t, err)
			got := inContext{t, p, copied.ID, c.CodeContext}.run("import second; print(first.value, second.value)")
			assert.Check(t, is.Equal(got.stdout, "from first from second\n"), got.stderr)
			assert.Equal(t, run(t, p, copied.ID, sdk.Python, "import second; print(second.value)").stdout, "from second\n")
			assert.NilError(t, p.Destroy(t.Context(), copied.ID))
			assert.NilError(t, p.DeleteSnapshot(t.Context(), source.ID))
		})
	}
	assert.NilError(t, p.layers.store.Collect())
	left, err := os.ReadDir(p.layers.store.Dir())
	assert.NilError(t, err)
	assert.Check(t, is.Len(left, 0), "nobody needs it any more")
}

func TestPreparedCopiesAndTemplatesHaveLayersToo(t *testing.T) {
	tier.Full(t)
	index := startCounted(t)
	index.addWheel("first", "value = 'from first'", nil)
	t.Run("copies of a prepared sandbox", func(t *testing.T) {
		p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple(), "images": imagesAlways})
		for range 2 {
			id := create(t, p, templatePython)
			got, err := install(t, p, id, "first")
			succeeded(t, got, err)
			assert.Equal(t, run(t, p, id, sdk.Python, "import first; print(first.value)").stdout, "from first\n")
		}
		assert.Equal(t, index.fetched.Load(), int64(1))
	})
	t.Run("templates", func(t *testing.T) {
		p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
		built, err := buildTemplate(t, p, sdk.BuildTemplateRequest{Rootfs: pythonRootfs(t)})
		assert.NilError(t, err)
		before := index.fetched.Load()
		ids := []string{createOf(t, p, built.Image), createOf(t, p, built.Image), create(t, p, templatePython)}
		for _, id := range ids {
			got, err := install(t, p, id, "first")
			succeeded(t, got, err)
			assert.Equal(t, run(t, p, id, sdk.Python, "import first; print(first.value)").stdout, "from first\n")
		}
		assert.Equal(t, index.fetched.Load()-before, int64(2), "one for the template, and one for what is no template")
	})
}

func TestWhoRemovesTheLayersTakesThemFromInstancesAndNothingElse(t *testing.T) {
	tier.Full(t)
	index := startCounted(t)
	index.addWheel("first", "value = 'from first'", nil)
	index.addWheel("second", "value = 'from second'", nil)
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	id := create(t, p, templatePython)
	got, err := install(t, p, id, "first")
	succeeded(t, got, err)
	assert.NilError(t, os.RemoveAll(filepath.Join(p.dir+"-keep", "package-layers")))
	assert.Check(t, is.Contains(run(t, p, id, sdk.Python, "import first").stderr, "ModuleNotFoundError"))
	// What appears now, the instance does not see: it looks at what was removed.
	for _, name := range []string{"first", "second"} {
		got, err := install(t, p, id, name)
		succeeded(t, got, err)
		assert.Equal(t, run(t, p, id, sdk.Python, "import "+name+"; print("+name+".value)").stdout, "from "+name+"\n")
	}
	other := create(t, p, templatePython)
	before := index.fetched.Load()
	got, err = install(t, p, other, "second")
	succeeded(t, got, err)
	assert.Equal(t, index.fetched.Load(), before, "the others have layers again")
	assert.Check(t, is.Contains(run(t, p, other, sdk.Bash, "readlink .packages/python/second.py").stdout, packageLayersDir))
}
