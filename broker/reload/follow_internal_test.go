package reload

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/config"
)

func TestWhatAReloadTellsOfTenants(t *testing.T) {
	from := &config.Config{Tenants: []config.Tenant{{Name: "kept"}, {Name: "changed"}, {Name: "removed"}}}
	to := &config.Config{Tenants: []config.Tenant{{Name: "added"}, {Name: "changed", Reuse: true}, {Name: "kept"}}}
	c := compare(from, to)
	assert.DeepEqual(t, c.TenantsAdded, []string{"added"})
	assert.DeepEqual(t, c.TenantsChanged, []string{"changed"})
	assert.DeepEqual(t, c.TenantsRemoved, []string{"removed"})
	assert.DeepEqual(t, c.Settings, []string(nil))
	assert.Assert(t, compare(to, to).Empty())
}

func TestWhatNeedsARestart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"another directory of the state":     {func(c *config.Config) { c.StateDir = "/else" }, "state cannot change"},
		"another directory of the audit log": {func(c *config.Config) { c.Audit.Dir = "/else" }, "audit.dir cannot change"},
		"another form of the log":            {func(c *config.Config) { c.Log.Format = "json" }, "log.format cannot change"},
		"another address":                    {func(c *config.Config) { c.Listen = "127.0.0.1:1" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := &config.Config{}, &config.Config{}
			c.change(to)
			diags := needsRestart(from, to)
			if c.want == "" {
				assert.Equal(t, len(diags), 0)
				return
			}
			assert.Equal(t, len(diags), 1)
			assert.Assert(t, diags.HasErrors())
			assert.Assert(t, is.Contains(diags[0].Detail, c.want))
		})
	}
}

// files is a configuration that is wrong, and how often it was read.
type files struct {
	revision string
	wrong    bool
	reads    int
	// saved, if not nil, changes them after a read.
	saved func()
}

func (f *files) load() (*config.Config, config.Diagnostics) {
	f.reads++
	var diags config.Diagnostics
	if f.wrong {
		diags = config.Diagnostics{{Severity: config.SeverityError, Summary: "Wrong"}}
	}
	read := &config.Config{Revision: f.revision}
	if f.saved != nil {
		f.saved()
	}
	return read, diags
}

func reloaderOf(f *files) *Reloader {
	catalog := &generation.Catalog{}
	catalog.Set(generation.New(&config.Config{Revision: "first"}, nil, nil))
	return New("first", Options{Host: &generation.Host{Catalog: catalog}, Logger: hclog.NewNullLogger(), Load: f.load})
}

// A file that is saved may be read when half of it is there. That is not told.
func TestAFileThatIsWrongIsReadASecondTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &files{revision: "half", wrong: true}
		r, began := reloaderOf(f), time.Now()
		f.saved = func() { f.revision, f.wrong = "first", false } // the editor is done, and has changed nothing
		_, err := r.Read(t.Context(), admin.TriggerFile)
		assert.NilError(t, err)
		assert.Equal(t, f.reads, 2)
		assert.Equal(t, time.Since(began), secondLook)
		assert.Equal(t, len(r.Reloads()), 0)
	})
}

// What is wrong is told once for each version of the files, and again to who asks.
func TestWhatIsWrongIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &files{revision: "second", wrong: true}
		r := reloaderOf(f)
		read := func(trigger admin.Trigger) (admin.Reload, error) { return r.Read(t.Context(), trigger) }
		reload, err := read(admin.TriggerFile)
		assert.ErrorContains(t, err, "Wrong")
		assert.Assert(t, !reload.Applied && reload.Generation == 1 && reload.Revision == "second")
		assert.Equal(t, len(r.Reloads()), 1)

		_, err = read(admin.TriggerFile)
		assert.NilError(t, err, "it is as wrong as before")
		assert.Equal(t, len(r.Reloads()), 1)
		_, err = read(admin.TriggerSignal)
		assert.ErrorContains(t, err, "Wrong")
		assert.Equal(t, len(r.Reloads()), 2)

		f.revision = "third"
		_, err = read(admin.TriggerFile)
		assert.ErrorContains(t, err, "Wrong")
		assert.Equal(t, len(r.Reloads()), 3)
		assert.Equal(t, r.inForce().Number, 1)
	})
}
