package chaos_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gotest.tools/v3/assert"
)

// Quotas of every tenant.
const (
	maxInstances  = 6
	maxConcurrent = 4
)

// frugal is the tenant with few executions a day.
const (
	frugal           = "frugal"
	frugalExecutions = 40
)

// bound is the tenant that may use the last provider alone.
const bound = "blue"

var tenants = []string{"red", "green", bound, frugal}

// tenants are those of a world.
func (w *world) tenants() []string {
	if w.keepers {
		return append(slices.Clone(tenants), keeping...)
	}
	return tenants
}

// plugins is the directory of the plugins.
func (w *world) plugins() string { return filepath.Join(w.dir, "plugins") }

// configure writes the configuration of the next broker.
func (w *world) configure(policy string) {
	w.t.Helper()
	var text strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	put("listen = %q\nplugin_dir = %q", w.address, w.plugins())
	if w.database != "" {
		put("state = %q\ndata = %q", w.database, w.stateDir)
	} else {
		put("state = %q", w.stateDir)
	}
	put("limits {\n create_timeout = \"%s\"\n default_ttl = \"6h\"\n max_idle = \"6h\"\n default_timeout = \"%s\"\n disk_timeout = %q\n}", cmp.Or(w.createTimeout, w.pace.create), w.pace.execute, w.diskTimeout)
	put("log {\n level = \"info\"\n}")
	put("audit {\n dir = %q\n}", w.auditDir)
	var labels []string
	for i, c := range w.clouds {
		put("provider %q {\n endpoint = %q\n cost_per_second = %g\n}", c.Name(), c.URL(), 1/float64(i+1)) // the last is the cheapest
		labels = append(labels, fmt.Sprintf("%q", c.Name()))
	}
	for i, b := range w.backends {
		put("provider %q {\n%s cost_per_second = %g\n}", b.label(), b.settings(), 1/float64(i+1))
		labels = append(labels, fmt.Sprintf("%q", b.label()))
	}
	last := labels[len(labels)-1]
	onStop := "destroy"
	if w.keeps {
		onStop = "keep"
	}
	put("providers {\n active = %s\n fallback = [%s]\n policy = %q\n on_stop = %q\n}", labels[0], strings.Join(labels[1:], ", "), policy, onStop)
	for _, d := range doors {
		put("front_door %q {\n wait = \"500ms\"\n%s}", d.name, d.settings)
	}
	if w.keepers {
		put("admin {\n token_sha256 = [\"%x\"]\n}", sha256.Sum256([]byte(tokenOf(admin))))
	}
	for _, tenant := range w.tenants() {
		executions, allowed := 1_000_000, strings.Join(labels, ", ")
		switch tenant {
		case frugal:
			executions = frugalExecutions
		case bound:
			allowed = last
		}
		put("tenant %q {\n token_sha256 = [\"%x\"]\n providers = [%s]", tenant, sha256.Sum256([]byte(tokenOf(tenant))), allowed)
		put(" quota {\n max_instances = %d\n max_concurrent = %d\n executions_per_day = %d", maxInstances, maxConcurrent, executions)
		if slices.Contains(keeping, tenant) {
			put(" max_snapshots = %d\n max_volumes = %d\n max_volume_bytes = %d", maxSnapshots, maxVolumes, maxVolumeBytes)
		}
		put(" }\n}")
	}
	assert.NilError(w.t, os.WriteFile(filepath.Join(w.dir, "sandbox.hcl"), []byte(text.String()), 0o644))
}
