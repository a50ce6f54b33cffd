package provider

import (
	"archive/zip"
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// bulkWheel writes a package of about the size of numpy: 600 modules with 9 MB of source,
// which pip compiles, and 30 MB that do not get smaller when they are packed. Importing it
// imports a hundred of its modules.
func bulkWheel(b *testing.B, dir string) {
	b.Helper()
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	var record strings.Builder
	put := func(path string, content []byte) {
		w, err := archive.Create(path)
		assert.NilError(b, err)
		_, err = w.Write(content)
		assert.NilError(b, err)
		fmt.Fprintf(&record, "%s,,\n", path)
	}
	var first strings.Builder
	for n := range 600 {
		var module strings.Builder
		for f := range 260 {
			fmt.Fprintf(&module, "def function_%d(x, y=%d):\n    return x * y + %d\n", f, n, f)
		}
		put(fmt.Sprintf("bulk/module_%d.py", n), []byte(module.String()))
		if n < 100 {
			fmt.Fprintf(&first, "from bulk import module_%d\n", n)
		}
	}
	put("bulk/__init__.py", []byte(first.String()))
	for n := range 30 {
		blob := make([]byte, 1<<20)
		_, _ = rand.Read(blob)
		put(fmt.Sprintf("bulk/data_%d.bin", n), blob)
	}
	put("bulk-1.0.dist-info/METADATA", []byte("Metadata-Version: 2.1\nName: bulk\nVersion: 1.0\n"))
	put("bulk-1.0.dist-info/WHEEL", []byte("Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"))
	record.WriteString("bulk-1.0.dist-info/RECORD,,\n")
	put("bulk-1.0.dist-info/RECORD", []byte(record.String()))
	assert.NilError(b, archive.Close())
	assert.NilError(b, os.WriteFile(filepath.Join(dir, "bulk-1.0-py3-none-any.whl"), packed.Bytes(), 0o644))
}

// BenchmarkRequirements installs a package of the size of numpy in a fresh instance and
// imports it: with pip as without layers, as the first who wants the layer, and as who comes
// later. Its figures are medians: of the installation, of the import in the first execution
// after it, and of the memory that the sandbox has in use then.
func BenchmarkRequirements(b *testing.B) {
	dir := b.TempDir()
	bulkWheel(b, dir)
	for name, bench := range map[string]struct {
		layersMB    int
		requirement func(round int) string
	}{
		"plain": {0, func(int) string { return "bulk" }},
		"first": {2048, func(round int) string { return fmt.Sprintf("bulk!=0.%d", round) }},
		"later": {2048, func(int) string { return "bulk" }},
	} {
		b.Run(name, func(b *testing.B) {
			p := New(hclog.NewNullLogger()).(*Provider)
			settings, _ := p.Describe().Schema.Resolve(map[string]any{
				"pool_size": 3, "memory_mb": 1024, "workspace_mb": 512, "packages": "on", "wheel_dir": dir, "package_layers_mb": bench.layersMB,
				"runsc": binaries.Runsc(b), "guest": filepath.Join(binaries.Dir(b), "sandbox-guest"),
			})
			assert.NilError(b, p.Configure(b.Context(), sdk.ConfigureRequest{
				Label: "x", BrokerID: "bench" + newID(), StateDir: b.TempDir(), KeepDir: b.TempDir(), Settings: settings,
			}))
			defer func() { assert.NilError(b, p.Close(b.Context())) }()
			var install, imported, memory []time.Duration
			for round := 0; b.Loop(); round++ {
				i, err := p.Create(b.Context(), sdk.CreateRequest{Template: templatePython})
				assert.NilError(b, err)
				var r recorder
				began := time.Now()
				result, err := p.InstallPackages(b.Context(), sdk.InstallPackagesRequest{
					InstanceID: i.ID, Language: sdk.Python, Requirements: []string{bench.requirement(round)}, Timeout: 5 * time.Minute, OutputLimit: 1 << 20,
				}, &r)
				assert.NilError(b, err)
				assert.Equal(b, result.Status, sdk.StatusSucceeded, "%s", r.err.String())
				took := time.Since(began)
				began = time.Now()
				result, err = p.Execute(b.Context(), sdk.ExecuteRequest{InstanceID: i.ID, Language: sdk.Python, Code: "import bulk; bulk.module_99.function_1(1)", Timeout: time.Minute, OutputLimit: 1 << 20}, &r)
				assert.NilError(b, err)
				assert.Equal(b, result.Status, sdk.StatusSucceeded, "%s", r.err.String())
				used := time.Since(began)
				m, err := p.InstanceMetrics(b.Context(), i.ID)
				assert.NilError(b, err)
				assert.NilError(b, p.Destroy(b.Context(), i.ID))
				if name == "later" && round == 0 {
					continue // it was the first
				}
				install, imported, memory = append(install, took), append(imported, used), append(memory, time.Duration(m.Memory))
			}
			for unit, figures := range map[string][]time.Duration{"install-ms": install, "import-ms": imported, "memory-MB": memory} {
				if len(figures) == 0 {
					continue
				}
				slices.Sort(figures)
				b.ReportMetric(float64(figures[len(figures)/2])/1e6, unit)
			}
		})
	}
}
