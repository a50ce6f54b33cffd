package edit_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

func ringOf(t testing.TB, keys ...string) *seal.Keyring {
	t.Helper()
	ring, err := seal.ParseKeys(strings.Join(keys, "\n"))
	assert.NilError(t, err)
	return ring
}

func sealedWith(t testing.TB, ring *seal.Keyring, value string) string {
	t.Helper()
	text, err := ring.Seal(value)
	assert.NilError(t, err)
	return text
}

func TestResealChangesSealedValuesAndNothingElse(t *testing.T) {
	young := seal.NewKey()
	old, both := ringOf(t, key), ringOf(t, young, key)
	dir := tree(t)
	pattern := "# sealed(\"not this one\")\nprovider   \"x\" {\n\n\ta=sealed( \"%s\" ) # why\n  b = [sealed(\"%s\"), {c = \"in ${sealed(\"%s\")}\"}]\n  d = \"sealed(\\\"nor this\\\")\"\n  e = sealed(env(\"NAME\"))\n}"
	first, second := sealedWith(t, old, "one"), sealedWith(t, both, "two")
	assert.NilError(t, os.WriteFile(dir.Join("conf.d/c.hcl"), fmt.Appendf(nil, pattern, first, second, first), 0o640))

	d := open(t, dir)
	got, err := d.Reseal(both)
	assert.NilError(t, err)
	assert.Equal(t, got.Anew, 2)
	assert.Equal(t, got.Already, 1)
	assert.DeepEqual(t, got.Computed, []string{dir.Join("conf.d/c.hcl") + ":7"})
	assert.NilError(t, d.SaveResealed())

	text := content(t, dir.Join("conf.d/c.hcl"))
	assert.Assert(t, !strings.Contains(text, first))
	assert.Assert(t, strings.Contains(text, second))
	var values []string
	for _, part := range strings.Split(text, `"sb1:`)[1:] {
		value, _, _ := strings.Cut(part, `"`)
		values = append(values, "sb1:"+value)
		_, err := ringOf(t, young).Open("sb1:" + value)
		assert.NilError(t, err)
	}
	assert.Assert(t, is.Len(values, 3))
	assert.Equal(t, text, fmt.Sprintf(pattern, values[0], values[1], values[2]))

	again := open(t, dir)
	got, err = again.Reseal(both)
	assert.NilError(t, err)
	assert.Equal(t, got.Anew, 0)
	assert.Assert(t, is.Len(again.Changed(), 0))
}

func TestResealStopsAtAValueThatDoesNotOpen(t *testing.T) {
	good := sealedWith(t, ringOf(t, key), "one")
	d, path := opened(t, fmt.Sprintf("a = sealed(%q)\nb = sealed(\"hunter2\")\n", good))
	before := textOf(t, d)
	_, err := d.Reseal(ringOf(t, seal.NewKey(), key))
	assert.ErrorIs(t, err, seal.ErrForm)
	assert.Assert(t, is.ErrorContains(err, path+":2: "))
	assert.Assert(t, !strings.Contains(err.Error(), "hunter2"))
	assert.Equal(t, textOf(t, d), before)
}

// FuzzEdit checks that a setting that is put in and taken out again leaves the file
// as it was, and that no file makes it panic.
func FuzzEdit(f *testing.F) {
	for _, name := range []string{"plain.hcl", "formatted.hcl"} {
		f.Add(read(f, name))
	}
	f.Add(crlf)
	f.Add(bom)
	f.Add("provider \"full\" {/**/}#")
	f.Add("tenant \"acme\" { token_sha256 = [\n1\n,\n2 ] }")
	f.Fuzz(func(t *testing.T, text string) {
		path := t.TempDir() + "/x.hcl"
		if strings.Contains(text, "include") {
			return // what it finds on this machine is no part of the input
		}
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
		d, err := edit.Open(path)
		if err != nil {
			return
		}
		full, acme := edit.Provider("full"), edit.Tenant("acme")
		had := edit.Given(d, full, "zz_new")
		if d.Has(full) && !had && !edit.OneLine(d, full) {
			assert.NilError(t, d.Set(full, "zz_new", literal(t, map[string]string{"a": "b\n${c}"})))
			assert.Assert(t, edit.Given(d, full, "zz_new"))
			assert.NilError(t, d.Unset(full, "zz_new"))
			if !strings.Contains(text, "\r") && !edit.Formatted(d) {
				assert.Equal(t, textOf(t, d), text)
			}
		}
		if rules := full.In("rules", d.Count(full, "rules")); d.Has(full) {
			limit := rules.In("limit", 0)
			assert.NilError(t, d.Set(limit, "rate", literal(t, 1)))
			assert.Assert(t, edit.Given(d, limit, "rate"))
			assert.NilError(t, d.Insert(full.In("rules", 0)))
			moved := full.In("rules", d.Count(full, "rules")-1)
			assert.Assert(t, edit.Given(d, moved.In("limit", 0), "rate"))
			assert.NilError(t, d.Remove(moved.In("limit", 0)))
			assert.NilError(t, d.Remove(moved))
		}
		// These may be refused; they must not break the file or panic.
		_ = d.AddToken("acme", token(1))
		_ = d.RemoveToken("acme", token(0xa))
		_ = d.Set(edit.Quota("acme"), "a", literal(t, 1))
		_ = d.Rename(acme, "other")
		if d.Has(full) {
			assert.NilError(t, d.Remove(full))
		}
		if !d.Has(edit.Tenant("new")) {
			assert.NilError(t, d.AddTenant("new", token(2)))
			assert.Assert(t, d.Has(edit.Tenant("new")))
		}
	})
}
