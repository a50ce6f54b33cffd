package edit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config/edit"
)

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	assert.NilError(t, err)
	return string(text)
}

func opened(t testing.TB, text string) (*edit.Document, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sandbox.hcl")
	assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
	d, err := edit.Open(path)
	assert.NilError(t, err)
	return d, path
}

// textOf is what Save would write, of a document with one file.
func textOf(t testing.TB, d *edit.Document) string {
	t.Helper()
	texts := edit.Texts(d)
	assert.Equal(t, len(texts), 1)
	return texts[0]
}

func literal(t testing.TB, value any) edit.Value {
	t.Helper()
	v, err := edit.Literal(value)
	assert.NilError(t, err)
	return v
}

// token is the sum that is written as one digit 64 times.
func token(digit byte) (sum [32]byte) {
	for i := range sum {
		sum[i] = digit<<4 | digit
	}
	return sum
}

const (
	crlf = "tenant \"a\" {\r\n  token_sha256 = [\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]\r\n}\r\n# last\r\nprovider \"full\" {}"
	bom  = "\ufeffprovider \"full\" { } # no newline at the end, and a mark at the start\ntenant \"a\" {\n  token_sha256 = []\n}"
)

var visible = strings.NewReplacer("\r", "<CR>", "\t", "<TAB>", "\ufeff", "<BOM>")

// Each change is made on a fresh copy; what comes out is compared as a whole.
func TestChanges(t *testing.T) {
	plain := read(t, "plain.hcl")
	full, nested := edit.Provider("full"), read(t, "nested.hcl")
	rules := func(i int) edit.Block { return full.In("rules", i) }
	for name, test := range map[string]struct {
		text   string
		change func(d *edit.Document) error
	}{
		"replace_a_number": {plain, func(d *edit.Document) error { return d.Set(full, "pool_size", literal(t, 16)) }},
		"the_same_number":  {plain, func(d *edit.Document) error { return d.Set(full, "pool_size", literal(t, int64(4))) }},
		"replace_a_map": {plain, func(d *edit.Document) error {
			return d.Set(full, "labels", literal(t, map[string]string{"x y": "${a}", "b": "1"}))
		}},
		"replace_a_heredoc": {plain, func(d *edit.Document) error { return d.Set(full, "text", literal(t, "one\ntwo \"%{\"")) }},
		"add_settings": {plain, func(d *edit.Document) error {
			return each(d.Set(full, "cpus", literal(t, 0.5)), d.Set(full, "runtime_of_all", literal(t, true)))
		}},
		"add_a_setting_to_an_empty_block": {plain, func(d *edit.Document) error { return d.Set(edit.Provider("other"), "idle", literal(t, 90*time.Second)) }},
		"add_a_setting_to_one_line": {plain, func(d *edit.Document) error {
			return d.Set(edit.Tenant("beta"), "providers", literal(t, []string{"full", "other"}))
		}},
		"add_a_map_under_tabs": {plain, func(d *edit.Document) error {
			return d.Set(edit.Tenant("gamma"), "x", literal(t, map[string]string{"a": "b"}))
		}},
		"remove_a_setting": {plain, func(d *edit.Document) error {
			return each(d.Unset(full, "pool_size"), d.Unset(full, "text"), d.Unset(full, "never_there"))
		}},
		"remove_a_setting_in_one_line": {plain, func(d *edit.Document) error { return d.Unset(edit.Tenant("beta"), "token_sha256") }},
		"overwrite_env":                {plain, func(d *edit.Document) error { return d.Overwrite(full, "api_key", literal(t, "x")) }},
		"choose_providers": {plain, func(d *edit.Document) error {
			return each(d.Set(edit.Providers(), "active", literal(t, "full")), d.Set(edit.Providers(), "fallback", literal(t, []string{"other"})))
		}},
		"add_a_tenant":           {plain, func(d *edit.Document) error { return d.AddTenant("new", token(1), token(2)) }},
		"remove_a_tenant":        {plain, func(d *edit.Document) error { return d.Remove(edit.Tenant("beta")) }},
		"remove_the_last_block":  {plain, func(d *edit.Document) error { return d.Remove(edit.Tenant("gamma")) }},
		"remove_the_first_block": {plain, func(d *edit.Document) error { return d.Remove(full) }},
		"rename_tenants": {plain, func(d *edit.Document) error {
			return each(d.Rename(edit.Tenant("acme"), "acme-2"), d.Rename(edit.Tenant("gamma"), "delta"))
		}},
		"quotas": {plain, func(d *edit.Document) error {
			return each(d.Set(edit.Quota("acme"), "max_instances", literal(t, 5)), d.Set(edit.Quota("acme"), "requests_per_second", literal(t, 2.5)), d.Set(edit.Quota("beta"), "max_instances", literal(t, 1)))
		}},
		"add_tokens": {plain, func(d *edit.Document) error {
			return each(d.AddToken("acme", token(1)), d.AddToken("beta", token(1)), d.AddToken("gamma", token(1)), d.AddToken("gamma", token(2)))
		}},
		"remove_tokens": {plain, func(d *edit.Document) error {
			return each(d.RemoveToken("acme", token(0xb)), d.RemoveToken("gamma", token(0xd)), d.RemoveToken("beta", token(0xc)))
		}},
		"remove_the_first_token": {plain, func(d *edit.Document) error { return d.RemoveToken("acme", token(0xa)) }},
		"set_in_blocks": {nested, func(d *edit.Document) error {
			return each(d.Set(full.In("auth", 0), "user", literal(t, "you")), d.Set(rules(1), "host", literal(t, "c")), d.Set(rules(1).In("limit", 0), "rate", literal(t, 2.5)), d.Set(rules(2), "host", literal(t, "d")), d.Set(rules(0).In("limit", 0), "rate", literal(t, 1)))
		}},
		"overwrite_in_a_block": {nested, func(d *edit.Document) error {
			return each(d.Overwrite(full.In("auth", 0), "token", literal(t, "x")), d.Overwrite(rules(1).In("limit", 0), "burst", literal(t, 9)))
		}},
		"unset_in_blocks": {nested, func(d *edit.Document) error {
			return each(d.Unset(full.In("auth", 0), "token"), d.Unset(rules(1).In("limit", 0), "rate"), d.Unset(rules(3), "ports"), d.Unset(rules(0), "none"))
		}},
		"add_blocks": {nested, func(d *edit.Document) error {
			return each(d.Add(rules(4)), d.Set(rules(4), "host", literal(t, "new")), d.Set(rules(2).In("limit", 0), "rate", literal(t, 3)), d.Set(rules(3).In("limit", 0), "rate", literal(t, 4)), d.Set(full.In("fresh", 0).In("deep", 0), "a", literal(t, 1)), d.Add(rules(1).In("limit", 1)))
		}},
		"insert_blocks": {nested, func(d *edit.Document) error {
			return each(d.Insert(rules(0)), d.Set(rules(0), "host", literal(t, "zero")), d.Insert(rules(3)), d.Insert(rules(6)), d.Insert(rules(2).In("limit", 0)))
		}},
		"remove_blocks": {nested, func(d *edit.Document) error {
			return each(d.Remove(rules(2)), d.Remove(rules(1).In("limit", 0)), d.Remove(rules(0)), d.Remove(full.In("auth", 0)))
		}},
		"remove_all_blocks": {nested, func(d *edit.Document) error {
			return each(d.Remove(rules(3)), d.Remove(rules(2)), d.Remove(rules(1)), d.Remove(rules(0)), d.Remove(full.In("auth", 0)))
		}},
		"blocks_crlf": {strings.ReplaceAll(nested, "\n", "\r\n"), func(d *edit.Document) error {
			return each(d.Insert(rules(1)), d.Set(rules(1).In("limit", 0), "rate", literal(t, 3)), d.Remove(rules(3)))
		}},
		"crlf": {crlf, func(d *edit.Document) error {
			return each(d.Set(full, "labels", literal(t, map[string]string{"a": "b"})), d.AddTenant("b", token(1)), d.AddToken("a", token(2)))
		}},
		"formatted": {read(t, "formatted.hcl"), func(d *edit.Document) error {
			return each(d.Set(full, "pool_size", literal(t, 100)), d.Set(full, "longer_than_all", literal(t, true)), d.Set(edit.Providers(), "active", literal(t, "full")), d.Set(edit.Providers(), "fallback", literal(t, []string{"other"})), d.AddToken("acme", token(1)))
		}},
		"byte_order_mark": {bom, func(d *edit.Document) error {
			return each(d.Set(full, "a", literal(t, "b")), d.AddToken("a", token(2)), d.AddTenant("b", token(1)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := opened(t, test.text)
			assert.NilError(t, test.change(d))
			golden.Assert(t, visible.Replace(textOf(t, d)), name+".out")
		})
	}
}

func each(errs ...error) error { return errors.Join(errs...) }
