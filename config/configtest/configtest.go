// Package configtest makes configurations with something in every field, and says how each
// field is changed, so that tests can prove that none is forgotten.
package configtest

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
)

// Word is every text of a configuration that a Maker makes.
const Word = "x"

// Maker makes configurations with something in every field, always the same.
type Maker struct {
	t *testing.T
	// foreign are types of other modules, with one value and another.
	foreign map[reflect.Type][2]any
}

// Field is one that can be set, and how it is given another value.
type Field struct {
	Path   string
	change func(root reflect.Value)
}

// Change gives it another value in a configuration.
func (f Field) Change(cfg *config.Config) { f.change(reflect.ValueOf(cfg).Elem()) }

// New returns a Maker for a test.
func New(t *testing.T) *Maker {
	one, other := certtest.NewAuthority(t), certtest.NewAuthority(t)
	certificate := func(a *certtest.Authority) tls.Certificate {
		pair := a.Issue("x")
		certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
		assert.NilError(t, err)
		return certificate
	}
	return &Maker{t, map[reflect.Type][2]any{
		reflect.TypeFor[tls.Certificate](): {certificate(one), certificate(other)},
		reflect.TypeFor[*x509.CertPool]():  {one.Pool(), other.Pool()},
		reflect.TypeFor[netip.Prefix]():    {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/9")},
	}}
}

// Config is a configuration, each time a new one.
func (m *Maker) Config() *config.Config {
	cfg := &config.Config{}
	m.fill(reflect.ValueOf(cfg).Elem())
	return cfg
}

// fill puts something into a value and all that it can hold.
func (m *Maker) fill(v reflect.Value) {
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
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		m.fill(key)
		m.fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		m.change(v)
	}
}

// change gives a value another one.
func (m *Maker) change(v reflect.Value) {
	if values, ok := m.foreign[v.Type()]; ok {
		v.Set(reflect.ValueOf(values[1]))
		return
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(v.String() + Word)
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.CanFloat():
		v.SetFloat(v.Float() + 1)
	default:
		m.t.Fatalf("this test has no two values of a %s: add them in New, or a case here", v.Type())
	}
}

// changeEntry gives the one entry of a map another key, or another value.
func (m *Maker) changeEntry(v reflect.Value, otherKey bool) {
	for oldKey, oldValue := range v.Seq2() {
		key, value := reflect.New(oldKey.Type()).Elem(), reflect.New(oldValue.Type()).Elem()
		key.Set(oldKey)
		value.Set(oldValue)
		if otherKey {
			v.SetMapIndex(oldKey, reflect.Value{})
			m.change(key)
		} else {
			m.change(value)
		}
		v.SetMapIndex(key, value)
		return
	}
}

// Fields are those of a configuration. closed are the paths of those that only package
// config can set.
func (m *Maker) Fields() (fields []Field, closed []string) {
	return m.fields(reflect.TypeFor[config.Config](), "", func(root reflect.Value) reflect.Value { return root })
}

// fields are those of a type, each list and pointer itself and what it holds.
func (m *Maker) fields(of reflect.Type, path string, at func(root reflect.Value) reflect.Value) (fields []Field, closed []string) {
	add := func(more []Field, others []string) {
		fields, closed = append(fields, more...), append(closed, others...)
	}
	_, foreign := m.foreign[of]
	// An item of a list is never nil.
	if of.Kind() == reflect.Slice || of.Kind() == reflect.Map || of.Kind() == reflect.Pointer && !strings.HasSuffix(path, "]") {
		fields = append(fields, Field{path + " = nil", func(root reflect.Value) { at(root).SetZero() }})
	}
	switch kind := of.Kind(); {
	case foreign:
		add([]Field{{path, func(root reflect.Value) { m.change(at(root)) }}}, nil)
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
	case kind == reflect.Map:
		add([]Field{
			{path + " key", func(root reflect.Value) { m.changeEntry(at(root), true) }},
			{path + " value", func(root reflect.Value) { m.changeEntry(at(root), false) }},
		}, nil)
	default:
		add([]Field{{path, func(root reflect.Value) { m.change(at(root)) }}}, nil)
	}
	return fields, closed
}
