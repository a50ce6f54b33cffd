package reload

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/launch"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/configtest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// inForceAsTheyAre are the fields that only say how the files put it. A configuration in
// which nothing else differs makes no generation: commit takes it over, and whoever shows
// these fields takes them from there.
var inForceAsTheyAre = []string{
	"FallbackWritten = nil", "FallbackWritten[0]", // FallbackProviders says what it means
	"Revision", // of the files
}

// hidden are the fields that this test cannot set, with what answers for them.
var hidden = map[string]string{
	"files":                   "Revision says that they differ; they are watched and shown",
	"keys":                    "commit takes them over; what they open are the values of settings",
	"shared":                  "the text of a file: Revision says that it differs, and what it says is in the other fields",
	"Providers[0].header":     "a place in the files",
	"Providers[0].file":       "places in the files",
	"Providers[0].attributes": "the settings that the plugin gets: serves compares them, and Provider.Equal",
	"Providers[0].shared":     "the same, of what Providers[0].CostPerSecond is written as",
}

// TestAReloadKnowsEveryField changes each field that a configuration has, however deep,
// and looks whether a reload sees that. One that it does not see would be accepted and
// not be in force, without a word.
func TestAReloadKnowsEveryField(t *testing.T) {
	maker := configtest.New(t)
	reload := newReloads(t)
	fields, closed := maker.Fields()
	assert.Check(t, is.DeepEqual(slices.Sorted(slices.Values(closed)), slices.Sorted(maps.Keys(hidden))),
		"a field that no other package can set: say in the table what answers for it")

	from, same := maker.Config(), maker.Config()
	assert.Assert(t, !reload.sees(t, from, same), "nothing has changed, and the reload sees something")
	seen := map[string]bool{}
	for _, f := range fields {
		t.Run(f.Path, func(t *testing.T) {
			to := maker.Config()
			f.Change(to)
			seen[f.Path] = true
			if slices.Contains(inForceAsTheyAre, f.Path) {
				assert.Assert(t, !reload.sees(t, from, to), "the reload sees it: take it from the list")
				assert.Assert(t, reload.adopts(t, from, to))
				return
			}
			assert.Assert(t, reload.sees(t, from, to), "a reload that changes config.Config.%s would do nothing, and say nothing: "+
				"compare it in compare or in needsRestart, and put it in force in settingsOf or Apply of package broker", f.Path)
			if strings.HasPrefix(f.Path, "Providers[0].") {
				assert.Assert(t, !to.Providers[0].Equal(from.Providers[0]), "Provider.Equal does not see it")
			}
		})
	}
	for _, path := range inForceAsTheyAre {
		assert.Check(t, seen[path], "there is no field %s", path)
	}
}

// reloads make the comparison that a reload makes.
type reloads struct{ *Reloader }

// dirs have no directory, since no process of the test starts.
type dirs struct{ launch.Dirs }

func (dirs) ID() string { return configtest.Word }

func (dirs) KeepDir(string) (string, error) { return configtest.Word, nil }

func (dirs) RemoveAll([]string) error { return nil }

func newReloads(t *testing.T) *reloads {
	catalog := &generation.Catalog{}
	instances := instance.NewService(instance.Options{Catalog: catalog, Logger: hclog.NewNullLogger()})
	t.Cleanup(func() { instances.Shutdown(context.Background()) })
	runtimeDir, err := os.MkdirTemp("", "rt") //nolint:usetesting // t.TempDir is too long for a socket
	assert.NilError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(runtimeDir) })
	launcher, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{
		PluginDir: t.TempDir(), RuntimeDir: runtimeDir, Watchdog: "/proc/self/exe", Logger: hclog.NewNullLogger(),
	})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, launcher.Close()) })
	return &reloads{New("", Options{Host: &generation.Host{
		Catalog: catalog, Instances: instances, Logger: hclog.NewNullLogger(),
		Starter: &launch.Starter{Plugins: launcher, Dirs: dirs{}, Logger: hclog.NewNullLogger()},
	}})}
}

// inForce is a generation with that configuration.
func (r *reloads) inForce(t *testing.T, cfg *config.Config) *generation.Generation {
	block := cfg.Providers[0]
	settings, diags := block.Settings(sdk.Schema{})
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	revisions := r.Host.Supervise([]launch.Started{{Block: block, Spec: launch.SpecOf(cfg, block), Settings: settings}})
	revisions[0].Stop(t.Context()) // the comparison asks it only what it is
	return generation.New(cfg, revisions, nil)
}

// sees reports whether a reload would put it in force, or refuse it.
func (r *reloads) sees(t *testing.T, from, to *config.Config) bool {
	next := &transition{Reloader: r.Reloader}
	next.plan(r.inForce(t, from), to)
	return !next.change.Empty() || needsRestart(from, to).HasErrors()
}

// adopts reports whether a reload without a change takes the configuration over.
func (r *reloads) adopts(t *testing.T, from, to *config.Config) bool {
	next := &transition{Reloader: r.Reloader}
	next.plan(r.inForce(t, from), to)
	assert.NilError(t, next.commit())
	return r.Host.Catalog.InForce().Config == to
}
