// Package kubernetes_test builds the manifests of this directory as kubectl does, and has the
// broker check the configuration in them. A cluster runs them in e2e/cluster/inside.
package kubernetes_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

// build builds the manifests with some components.
func build(t *testing.T, components ...string) resmap.ResMap {
	t.Helper()
	work := t.TempDir()
	assert.NilError(t, os.CopyFS(filepath.Join(work, "base"), os.DirFS(".")))
	return buildOverlay(t, work, "resources: [../base]\ncomponents: ["+strings.Join(components, ", ")+"]\n")
}

// buildOverlay builds an overlay of what is below work.
func buildOverlay(t *testing.T, work, overlay string) resmap.ResMap {
	t.Helper()
	dir := filepath.Join(work, "overlay")
	assert.NilError(t, os.Mkdir(dir, 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600))
	config, err := os.ReadFile("sandbox.hcl")
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "sandbox.hcl"), append(config, "# Changed.\n"...), 0o600))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	assert.NilError(t, err)
	return built
}

// The components that there are.
func components(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("components/*/kustomization.yaml")
	assert.NilError(t, err)
	assert.Assert(t, len(found) > 0)
	var all []string
	for _, file := range found {
		all = append(all, "../base/"+filepath.Dir(file))
	}
	return all
}

func TestTheConfigurationOfEachIsTaken(t *testing.T) {
	all := components(t)
	cases := map[string][]string{"none": nil, "all": all}
	for _, one := range all {
		cases[filepath.Base(one)] = []string{one}
	}
	for name, with := range cases {
		t.Run(name, func(t *testing.T) {
			secrets := t.TempDir()
			assert.NilError(t, os.WriteFile(filepath.Join(secrets, "demo"), []byte(strings.Repeat("a", 64)), 0o600))
			dir := t.TempDir()
			var found int
			for _, one := range build(t, with...).Resources() {
				if one.GetKind() != "ConfigMap" {
					continue
				}
				assert.Equal(t, one.GetName(), "sandbox-broker")
				for file, text := range one.GetDataMap() {
					found++
					text = strings.ReplaceAll(text, "/etc/sandbox-broker-secrets", secrets)
					assert.NilError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
				}
			}
			assert.Check(t, found > 0)
			out, err := exec.CommandContext(t.Context(), filepath.Join(binaries.Dir(t), "sandbox-broker"), "check", filepath.Join(dir, "sandbox.hcl")).CombinedOutput()
			assert.NilError(t, err, "%s", out)
			formatted, err := exec.CommandContext(t.Context(), filepath.Join(binaries.Dir(t), "sandbox-broker"), "config", "fmt", "--check", filepath.Join(dir, "sandbox.hcl")).CombinedOutput()
			assert.NilError(t, err, "%s", formatted)
		})
	}
}

func TestTheOverlayOfThePageChangesWhatItSays(t *testing.T) {
	page, err := os.ReadFile("README.md")
	assert.NilError(t, err)
	overlay := regexp.MustCompile("(?s)```text\n(apiVersion: kustomize.*?)```").FindSubmatch(page)
	assert.Assert(t, overlay != nil)
	work := t.TempDir()
	assert.NilError(t, os.CopyFS(filepath.Join(work, "kubernetes"), os.DirFS(".")))
	built, err := buildOverlay(t, work, string(overlay[1])).AsYaml()
	assert.NilError(t, err)
	for _, want := range []string{"image: registry.example.com/sandbox-broker:1\n", "# Changed.", "kind: PodMonitor"} {
		assert.Check(t, is.Contains(string(built), want))
	}
}

// Whatever is not said to be elsewhere goes to the namespace that kubectl happens to have.
func TestEachObjectSaysItsNamespace(t *testing.T) {
	for _, one := range build(t, components(t)...).Resources() {
		if one.GetKind() == "Namespace" {
			continue
		}
		assert.Check(t, one.GetNamespace() == "sandbox-broker" || one.GetNamespace() == "sandboxes", "%s", one.CurId())
	}
}

// A privilege that nobody asked for would go unseen among so many lines.
func TestNothingIsForTheWholeCluster(t *testing.T) {
	for _, one := range build(t, components(t)...).Resources() {
		assert.Check(t, !is.Contains([]string{"ClusterRole", "ClusterRoleBinding"}, one.GetKind())().Success(), "%s", one.CurId())
	}
}
