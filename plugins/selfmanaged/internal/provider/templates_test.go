package provider

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/packageindex"
	"github.com/sandbox-broker/sandbox-broker/e2e/smallroot"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// pythonRootfs is the Python of the root file system of `make rootfs`, with pip.
func pythonRootfs(t *testing.T) string {
	t.Helper()
	from, root := binaries.Rootfs(t), t.TempDir()
	patterns := []string{
		"bin", "lib", "lib64", "usr/bin/python3*", "usr/lib/python3.*", "usr/lib/python3/dist-packages/pip*",
		"usr/lib/python3/dist-packages/setuptools*", "usr/lib/python3/dist-packages/pkg_resources", "usr/lib/python3/dist-packages/wheel*", "usr/lib64/*",
	}
	for _, library := range []string{"c", "m", "z", "expat", "ffi", "ssl", "crypto", "bz2", "lzma", "dl", "pthread", "util", "rt", "uuid"} {
		patterns = append(patterns, "usr/lib/*-linux-gnu*/lib"+library+".so*", "usr/lib/*-linux-gnu*/lib"+library+"-*.so*")
	}
	patterns = append(patterns, "usr/lib/*-linux-gnu*/ld-linux*")
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(from, pattern))
		assert.NilError(t, err)
		for _, path := range found {
			to := filepath.Join(root, strings.TrimPrefix(path, from))
			assert.NilError(t, os.MkdirAll(filepath.Dir(to), 0o755))
			assert.NilError(t, exec.Command("cp", "-a", path, to).Run())
		}
	}
	return root
}

func buildTemplate(t *testing.T, p testProvider, req sdk.BuildTemplateRequest) (sdk.BuiltTemplate, error) {
	t.Helper()
	if req.Name == "" {
		req.Name = "data"
	}
	return p.BuildTemplate(t.Context(), req, func(sdk.TemplateProgress) error { return nil })
}

func createOf(t *testing.T, p testProvider, image string) string {
	t.Helper()
	i, err := p.Create(t.Context(), sdk.CreateRequest{Template: "data", Image: image, Env: map[string]string{"GIVEN": "given", "OVER": "creator"}})
	assert.NilError(t, err)
	assert.Equal(t, i.Template, "data")
	return i.ID
}

func TestSandboxesAreMadeOfATemplate(t *testing.T) {
	p := newProvider(t, map[string]any{"pool_size": 4})
	built, err := buildTemplate(t, p, sdk.BuildTemplateRequest{
		Rootfs: smallroot.Bash(t), Env: map[string]string{"OWN": "template", "OVER": "template"}, MemoryMB: 100,
		Start: "echo started > /workspace/started; sleep 600", Ready: "[ -e /workspace/started ]",
	})
	assert.NilError(t, err)
	assert.DeepEqual(t, built.Languages, []sdk.Language{sdk.Bash})
	id := createOf(t, p, built.Image)

	for code, want := range map[string]string{
		"cat /srv/greeting": "hello from the image\n", "echo $OWN $OVER $GIVEN": "template creator given\n",
		"cat /workspace/started": "started\n", "echo ~; cat /etc/hostname": "/workspace\nsandbox\n", "echo /proc/self/fd/0": "/proc/self/fd/0\n",
	} {
		got := run(t, p, id, sdk.Bash, code)
		assert.Check(t, is.Equal(got.stdout, want), "%s: %s", code, got.stderr)
	}
	for _, code := range []string{"cat /srv/secret", "echo x > /srv/greeting", "echo x > /usr/bin/bash", "echo x > /opt/sandbox/guest"} {
		assert.Check(t, run(t, p, id, sdk.Bash, code).ExitCode != 0, code)
	}
	_, err = execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print(1)"})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotSupported)
	m, err := p.InstanceMetrics(t.Context(), id)
	assert.NilError(t, err)
	assert.Equal(t, m.MemoryLimit, int64(100<<20))

	// The pool keeps one ready, as for every template that is in demand.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if p.pool.Stats().Ready[built.Image] > 0 {
			return poll.Success()
		}
		return poll.Continue("%v", p.pool.Stats().Ready)
	}, poll.WithTimeout(time.Minute))

	list, err := p.ListTemplates(t.Context())
	assert.NilError(t, err)
	assert.DeepEqual(t, list, []sdk.BuiltTemplate{built})
	assert.NilError(t, p.RemoveTemplate(t.Context(), built.Image))
	assert.Equal(t, run(t, p, id, sdk.Bash, "cat /srv/greeting").stdout, "hello from the image\n", "who has an instance keeps it")
	assert.NilError(t, p.Destroy(t.Context(), id))
	images := filepath.Join(filepath.Dir(p.dir), "templates", "images")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		left, err := os.ReadDir(images)
		if err == nil && len(left) == 0 {
			return poll.Success()
		}
		return poll.Continue("%v %v", left, err)
	}, poll.WithTimeout(time.Minute))
	_, err = p.Create(t.Context(), sdk.CreateRequest{Template: "data", Image: built.Image})
	assert.ErrorContains(t, err, "has not been built here, or was removed")
}

func TestPackagesOfATemplateAreThereFromTheStart(t *testing.T) {
	tier.Full(t)
	index := packageindex.Start(t)
	index.AddWheel("first", "1.0", "def hello(): return 'hello from first'")
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	rootfs := pythonRootfs(t)
	built, err := buildTemplate(t, p, sdk.BuildTemplateRequest{Rootfs: rootfs, Packages: []string{"first"}})
	assert.NilError(t, err)
	id := createOf(t, p, built.Image)
	assert.Equal(t, run(t, p, id, sdk.Python, "import first; print(first.hello())").stdout, "hello from first\n")
	assert.Equal(t, newContext(t, p, id, sdk.Python).run("import first; print(first.hello())").stdout, "hello from first\n")

	// Without them, of the same layers.
	plain, err := buildTemplate(t, p, sdk.BuildTemplateRequest{Rootfs: rootfs, Source: built.Source, Name: "plain"})
	assert.NilError(t, err)
	assert.Check(t, is.Contains(run(t, p, createOf(t, p, plain.Image), sdk.Python, "import first").stderr, "ModuleNotFoundError"))
	_, err = buildTemplate(t, p, sdk.BuildTemplateRequest{Rootfs: rootfs, Source: built.Source, Packages: []string{"no-such-package"}})
	assert.ErrorContains(t, err, "No matching distribution")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidRequest)
	list, err := p.ListTemplates(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 2, "nothing is left of one that failed")
}

func TestATemplateThatDoesNotStartSaysSo(t *testing.T) {
	p := newProvider(t, nil)
	root := smallroot.Bash(t)
	assert.NilError(t, os.WriteFile(filepath.Join(root, "usr/bin/bash"), []byte("no program"), 0o755))
	_, err := buildTemplate(t, p, sdk.BuildTemplateRequest{Rootfs: root})
	assert.ErrorContains(t, err, "no sandbox of it starts")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidRequest)
	list, err := p.ListTemplates(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 0)
	_, err = buildTemplate(t, p, sdk.BuildTemplateRequest{Rootfs: smallroot.Bash(t), Packages: []string{"x"}})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotSupported, "the operator has not allowed packages")
}

// A copy is made of what its original was made of, whatever has become of the template.
func TestASnapshotKeepsWhatItsTemplateWasMadeOf(t *testing.T) {
	tier.Full(t)
	needsSnapshots(t)
	p := newProvider(t, map[string]any{"pool_size": 2})
	built, err := buildTemplate(t, p, sdk.BuildTemplateRequest{
		Rootfs: smallroot.Bash(t), MemoryMB: 100, Env: map[string]string{"OWN": "template"},
		Start: "echo started > /workspace/started; sleep 600",
	})
	assert.NilError(t, err)
	original := createOf(t, p, built.Image)
	shell := newContext(t, p, original, sdk.Bash)
	shell.says("n=1; exec 3< /srv/greeting; cd /tmp")
	fork := snapshot(t, p, original, forFork)
	kept := snapshot(t, p, original)
	assert.NilError(t, p.RemoveTemplate(t.Context(), built.Image))
	assert.NilError(t, p.Destroy(t.Context(), original))
	p.templates.background.Wait()

	goesOn := func(p testProvider, s sdk.Snapshot) {
		t.Helper()
		assert.Equal(t, s.Template, "data")
		i, err := p.Create(t.Context(), sdk.CreateRequest{Template: "data", Image: "sha256:what it is made of now", Snapshot: &sdk.SnapshotSource{ID: s.ID, Key: tenantKey}})
		assert.NilError(t, err)
		in := shell.in(i.ID)
		in.provider = p
		assert.Check(t, is.Equal(in.says(`n=$((n+1)); pwd; echo $n $OWN $GIVEN; read -u 3 line; echo $line`), "/tmp\n2 template given\nhello from the image"))
		assert.Check(t, is.Equal(run(t, p, i.ID, sdk.Bash, "cat /srv/greeting started; echo $OWN").stdout, "hello from the image\nstarted\ntemplate\n"))
		_, err = execute(t, p, sdk.ExecuteRequest{InstanceID: i.ID, Language: sdk.Python, Code: "print(1)"})
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotSupported)
		m, err := p.InstanceMetrics(t.Context(), i.ID)
		assert.NilError(t, err)
		assert.Equal(t, m.MemoryLimit, int64(100<<20))
		assert.NilError(t, p.Destroy(t.Context(), i.ID))
	}
	goesOn(p, fork)
	assert.NilError(t, p.DeleteSnapshot(t.Context(), fork.ID))
	goesOn(p, kept)
	p = laterProcess(t, p)
	p.templates.background.Wait()
	goesOn(p, kept)
	images := filepath.Join(filepath.Dir(p.dir), "templates", "images")
	left, err := os.ReadDir(images)
	assert.NilError(t, err)
	assert.Equal(t, len(left), 1, "the snapshot needs it")
	assert.NilError(t, p.DeleteSnapshot(t.Context(), kept.ID))
	p.templates.background.Wait()
	left, err = os.ReadDir(images)
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0, "nobody needs it any more")
	_, err = p.Create(t.Context(), sdk.CreateRequest{Template: "data", Snapshot: &sdk.SnapshotSource{ID: kept.ID, Key: tenantKey}})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
}
