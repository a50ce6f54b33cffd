package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// inForceAsTheyAre are the fields that only say how the files put it. A configuration in
// which nothing else differs makes no generation: adopt takes it over, and whoever shows
// these fields takes them from there.
var inForceAsTheyAre = []string{
	"FallbackWritten = nil", "FallbackWritten[0]", // FallbackProviders says what it means
	"Revision", // of the files
}

// hidden are the fields that this test cannot set, with what answers for them.
var hidden = map[string]string{
	"files":                   "Revision says that they differ; they are watched and shown",
	"keys":                    "adopt takes them over; what they open are the values of settings",
	"Providers[0].header":     "a place in the files",
	"Providers[0].file":       "places in the files",
	"Providers[0].attributes": "the settings that the plugin gets: serves compares them, and Provider.Equal",
	"Providers[0].shared":     "the same, of what Providers[0].CostPerSecond is written as",
}

// TestAReloadKnowsEveryField changes each field that a configuration has, however deep,
// and looks whether a reload sees that. One that it does not see would be accepted and
// not be in force, without a word.
func TestAReloadKnowsEveryField(t *testing.T) {
	makers := newMakers(t)
	reload := newReloads(t)
	fields, closed := makers.fields(reflect.TypeFor[config.Config](), "", func(root reflect.Value) reflect.Value { return root })
	assert.Check(t, is.DeepEqual(slices.Sorted(slices.Values(closed)), slices.Sorted(maps.Keys(hidden))),
		"a field that no other package can set: say in the table what answers for it")

	from, same := makers.config(), makers.config()
	assert.Assert(t, !reload.sees(t, from, same), "nothing has changed, and the reload sees something")
	seen := map[string]bool{}
	for _, f := range fields {
		t.Run(f.path, func(t *testing.T) {
			to := makers.config()
			f.change(reflect.ValueOf(to).Elem())
			seen[f.path] = true
			if slices.Contains(inForceAsTheyAre, f.path) {
				assert.Assert(t, !reload.sees(t, from, to), "the reload sees it: take it from the list")
				assert.Assert(t, reload.adopts(t, from, to))
				return
			}
			assert.Assert(t, reload.sees(t, from, to), "a reload that changes config.Config.%s would do nothing, and say nothing: "+
				"compare it in compare or in needsRestart, and put it in force in commit", f.path)
			if strings.HasPrefix(f.path, "Providers[0].") {
				assert.Assert(t, !to.Providers[0].Equal(from.Providers[0]), "Provider.Equal does not see it")
			}
		})
	}
	for _, path := range inForceAsTheyAre {
		assert.Check(t, seen[path], "there is no field %s", path)
	}
}

// reloads make the comparison that a reload makes.
type reloads struct {
	broker *broker
	// provider is what runs for the block of makers.config.
	provider *pluginhost.Supervised
}

func newReloads(t *testing.T) *reloads {
	b := &broker{catalog: &catalog{}}
	b.instances = instance.NewService(instance.Options{Catalog: b.catalog, Logger: hclog.NewNullLogger()})
	t.Cleanup(func() { b.instances.Shutdown(context.Background()) })
	runtimeDir, err := os.MkdirTemp("", "rt") //nolint:usetesting // t.TempDir is too long for a socket
	assert.NilError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(runtimeDir) })
	launcher, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{
		PluginDir: t.TempDir(), RuntimeDir: runtimeDir, Watchdog: "/proc/self/exe", Logger: hclog.NewNullLogger(),
	})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, launcher.Close()) })
	provider := pluginhost.Supervise(launcher, pluginhost.Spec{Label: word, Plugin: word}, sdk.ConfigureRequest{}, pluginhost.SuperviseOptions{Logger: hclog.NewNullLogger()})
	provider.Stop(t.Context()) // the comparison asks it only what it is
	return &reloads{b, provider}
}

// inForce is a generation with that configuration.
func (r *reloads) inForce(t *testing.T, cfg *config.Config) *generation {
	block := cfg.Providers[0]
	settings, diags := block.Settings(r.provider.Description().Schema)
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	return newGeneration(1, cfg, []*revision{{Supervised: r.provider, block: block, spec: specOf(cfg, block), settings: settings}}, nil)
}

// sees reports whether a reload would put it in force, or refuse it.
func (r *reloads) sees(t *testing.T, from, to *config.Config) bool {
	next := &transition{broker: r.broker}
	next.aim(r.inForce(t, from), to)
	return !next.change.Empty() || needsRestart(from, to).HasErrors()
}

// adopts reports whether a reload without a change takes the configuration over.
func (r *reloads) adopts(t *testing.T, from, to *config.Config) bool {
	next := &transition{broker: r.broker}
	next.aim(r.inForce(t, from), to)
	assert.NilError(t, next.committed())
	return r.broker.catalog.generation().cfg == to
}

// word is every text of a configuration that makers make.
const word = "x"

// makers make configurations with something in every field, always the same.
type makers struct {
	t *testing.T
	// foreign are types of other modules, with one value and another.
	foreign map[reflect.Type][2]any
}

// field is one that can be set, and how it is given another value.
type field struct {
	path   string
	change func(root reflect.Value)
}

func newMakers(t *testing.T) *makers {
	one, other := certtest.NewAuthority(t), certtest.NewAuthority(t)
	certificate := func(a *certtest.Authority) tls.Certificate {
		pair := a.Issue("x")
		certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
		assert.NilError(t, err)
		return certificate
	}
	return &makers{t, map[reflect.Type][2]any{
		reflect.TypeFor[tls.Certificate](): {certificate(one), certificate(other)},
		reflect.TypeFor[*x509.CertPool]():  {one.Pool(), other.Pool()},
		reflect.TypeFor[netip.Prefix]():    {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/9")},
	}}
}

func (m *makers) config() *config.Config {
	cfg := &config.Config{}
	m.fill(reflect.ValueOf(cfg).Elem())
	return cfg
}

// fill puts something into a value and all that it can hold.
func (m *makers) fill(v reflect.Value) {
	if values, ok := m.foreign[v.Type()]; ok {
		v.Set(reflect.ValueOf(values[0]))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for f, inner := range v.Fields() {
			if f.IsExported() {
				m.fill(inner)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		m.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		m.fill(v.Index(0))
	case reflect.Array:
		m.fill(v.Index(0))
	default:
		m.change(v)
	}
}

// change gives a value another one.
func (m *makers) change(v reflect.Value) {
	if values, ok := m.foreign[v.Type()]; ok {
		v.Set(reflect.ValueOf(values[1]))
		return
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(v.String() + word)
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.CanFloat():
		v.SetFloat(v.Float() + 1)
	default:
		m.t.Fatalf("this test has no two values of a %s: add them in newMakers, or a case here", v.Type())
	}
}

// fields are those of a type, each list and pointer itself and what it holds. closed are
// the paths of those that only package config can set.
func (m *makers) fields(of reflect.Type, path string, at func(root reflect.Value) reflect.Value) (fields []field, closed []string) {
	add := func(more []field, others []string) {
		fields, closed = append(fields, more...), append(closed, others...)
	}
	_, foreign := m.foreign[of]
	// An item of a list is never nil.
	if of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer && !strings.HasSuffix(path, "]") {
		fields = append(fields, field{path + " = nil", func(root reflect.Value) { at(root).SetZero() }})
	}
	switch kind := of.Kind(); {
	case foreign:
		add([]field{{path, func(root reflect.Value) { m.change(at(root)) }}}, nil)
	case kind == reflect.Struct:
		for f := range of.Fields() {
			inner := strings.TrimPrefix(path+"."+f.Name, ".")
			if !f.IsExported() {
				closed = append(closed, inner)
				continue
			}
			add(m.fields(f.Type, inner, func(root reflect.Value) reflect.Value { return at(root).FieldByIndex(f.Index) }))
		}
	case kind == reflect.Pointer:
		add(m.fields(of.Elem(), path, func(root reflect.Value) reflect.Value { return at(root).Elem() }))
	case kind == reflect.Slice || kind == reflect.Array:
		add(m.fields(of.Elem(), path+"[0]", func(root reflect.Value) reflect.Value { return at(root).Index(0) }))
	default:
		add([]field{{path, func(root reflect.Value) { m.change(at(root)) }}}, nil)
	}
	return fields, closed
}
