package edit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/config/seal"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const key = "sbkey_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

// tree is a configuration of three files that is right.
func tree(t testing.TB) *fs.Dir {
	t.Helper()
	tenant := func(name, digit string) string {
		return "# " + name + "\ntenant \"" + name + "\" {\n  token_sha256 = [\"" + strings.Repeat(digit, 64) + "\"]\n}\n"
	}
	return fs.NewDir(t, "edit",
		fs.WithFile("sandbox.hcl", "include = [\"conf.d/*.hcl\"]\nprovider \"full\" {\n  api_key = env(\"API_KEY\", \"x\")\n}\n"),
		fs.WithDir("conf.d", fs.WithFile("a.hcl", tenant("a", "a")), fs.WithFile("b.hcl", tenant("b", "b"))))
}

func open(t testing.TB, dir *fs.Dir) *edit.Document {
	t.Helper()
	d, err := edit.Open(dir.Join("sandbox.hcl"))
	assert.NilError(t, err)
	return d
}

func content(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	return string(text)
}

func TestASavedChangeIsInTheFileOfItsBlock(t *testing.T) {
	dir := tree(t)
	main, a := content(t, dir.Join("sandbox.hcl")), content(t, dir.Join("conf.d/a.hcl"))
	d := open(t, dir)
	assert.NilError(t, d.AddToken("b", token(1)))
	assert.NilError(t, d.AddTenant("c", token(2)))
	assert.Assert(t, is.Len(d.Changed(), 1))
	cfg, diags := d.Check()
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.NilError(t, d.Save())

	loaded, diags := config.Load(dir.Join("sandbox.hcl"))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.Equal(t, loaded.Revision, cfg.Revision, "Check knows the revision before it is written")
	assert.Equal(t, loaded.Revision, d.Revision())
	assert.Assert(t, is.Len(loaded.Tenants, 3))
	assert.Equal(t, content(t, dir.Join("sandbox.hcl")), main)
	assert.Equal(t, content(t, dir.Join("conf.d/a.hcl")), a)
	assert.Assert(t, is.Len(d.Changed(), 0))
	assert.NilError(t, d.RemoveToken("b", token(1)))
	assert.NilError(t, d.Save(), "it can go on after Save")
}

func TestTheLastBlockOfAnIncludedFileCanGo(t *testing.T) {
	dir := tree(t)
	_, block, _ := strings.Cut(content(t, dir.Join("conf.d/b.hcl")), "\n")
	assert.NilError(t, os.WriteFile(dir.Join("conf.d/b.hcl"), []byte(block), 0o600))
	d := open(t, dir)
	assert.NilError(t, d.Remove(edit.Tenant("b")))
	assert.NilError(t, d.Save())
	assert.Equal(t, content(t, dir.Join("conf.d/b.hcl")), "# The last block of this file was removed.\n")
}

func TestAChangeThatIsAMistakeIsNotWritten(t *testing.T) {
	dir := tree(t)
	d := open(t, dir)
	assert.NilError(t, d.AddToken("b", token(0xa)))
	err := d.Save()
	diags, ok := errors.AsType[config.Diagnostics](err)
	assert.Assert(t, ok, "%v", err)
	assert.Equal(t, diags[0].Summary, "Token given twice")
	assert.Assert(t, !strings.Contains(content(t, dir.Join("conf.d/b.hcl")), strings.Repeat("a", 64)))
}

// Nobody becomes the tenant of a front door by its name alone, after that has gone.
func TestATenantThatAFrontDoorHasIsNotRemoved(t *testing.T) {
	dir := tree(t)
	d := open(t, dir)
	door := edit.Block{Type: "front_door", Label: config.FrontDoorRAGFlow}
	assert.NilError(t, d.Add(door))
	assert.NilError(t, d.Set(door, "tenant", literal(t, "b")))
	assert.NilError(t, d.Save())

	before := content(t, dir.Join("conf.d/b.hcl"))
	assert.NilError(t, d.Remove(edit.Tenant("b")))
	var diags config.Diagnostics
	assert.Assert(t, errors.As(d.Save(), &diags))
	assert.Equal(t, diags[0].Summary, "Unknown tenant")
	assert.Equal(t, content(t, dir.Join("conf.d/b.hcl")), before)
}

func TestWhatWasChangedMeanwhileIsNotOverwritten(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, dir *fs.Dir){
		"the file itself": func(t *testing.T, dir *fs.Dir) {
			assert.NilError(t, os.WriteFile(dir.Join("conf.d/b.hcl"), []byte(content(t, dir.Join("conf.d/b.hcl"))+"# mine\n"), 0o600))
		},
		"another file": func(t *testing.T, dir *fs.Dir) {
			assert.NilError(t, os.WriteFile(dir.Join("sandbox.hcl"), []byte(content(t, dir.Join("sandbox.hcl"))+"# mine\n"), 0o600))
		},
		"a file that was not there": func(t *testing.T, dir *fs.Dir) {
			assert.NilError(t, os.WriteFile(dir.Join("conf.d/c.hcl"), []byte("# mine\n"), 0o600))
		},
		"a file that is gone": func(t *testing.T, dir *fs.Dir) {
			assert.NilError(t, os.Remove(dir.Join("conf.d/a.hcl")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t)
			d := open(t, dir)
			assert.NilError(t, d.AddToken("b", token(1)))
			meanwhile(t, dir)
			before := content(t, dir.Join("conf.d/b.hcl"))
			assert.ErrorIs(t, d.Save(), &sdk.Error{Code: sdk.CodeConflict})
			assert.Equal(t, content(t, dir.Join("conf.d/b.hcl")), before)
		})
	}
}

// The files come one after the other: when the second cannot be written, the first
// is as it was.
func TestAllFilesAreWrittenOrNone(t *testing.T) {
	dir := tree(t)
	assert.NilError(t, os.Chmod(dir.Join("conf.d/b.hcl"), 0o444))
	d := open(t, dir)
	assert.NilError(t, d.AddToken("a", token(1)))
	assert.NilError(t, d.AddToken("b", token(2)))
	before := content(t, dir.Join("conf.d/a.hcl"))
	err := d.Save()
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotAllowed})
	assert.Assert(t, is.ErrorContains(err, "conf.d/b.hcl: the file cannot be changed here: it is write-protected"))
	assert.Equal(t, content(t, dir.Join("conf.d/a.hcl")), before)
}

func TestFilesThatCannotBeOpenedForEditing(t *testing.T) {
	dir := tree(t)
	assert.NilError(t, os.WriteFile(dir.Join("conf.d/b.hcl"), []byte("tenant {"), 0o600))
	for _, path := range []string{dir.Join("sandbox.hcl"), dir.Join("gone.hcl"), dir.Join("conf.d/b.hcl")} {
		_, err := edit.Open(path)
		_, ok := errors.AsType[config.Diagnostics](err)
		assert.Assert(t, ok, "%s: %v", path, err)
	}
	deep := filepath.Join(t.TempDir(), "deep.hcl")
	assert.NilError(t, os.WriteFile(deep, []byte("a = "+strings.Repeat("(", 60_000)), 0o600))
	_, err := edit.Open(deep)
	assert.ErrorContains(t, err, "nested more than 100 deep")
}

func TestChangesThatAreRefused(t *testing.T) {
	plain := read(t, "plain.hcl")
	full, value := edit.Provider("full"), literal(t, "x")
	for name, test := range map[string]struct {
		change func(d *edit.Document) error
		code   sdk.Code
	}{
		"to overwrite what the environment gives": {func(d *edit.Document) error { return d.Set(full, "api_key", value) }, sdk.CodeConflict},
		"a provider that is not there":            {func(d *edit.Document) error { return d.Set(edit.Provider("none"), "a", value) }, sdk.CodeInvalidRequest},
		"quotas of nobody":                        {func(d *edit.Document) error { return d.Set(edit.Quota("none"), "a", value) }, sdk.CodeInvalidRequest},
		"a setting whose name is none":            {func(d *edit.Document) error { return d.Set(full, "a\nb", value) }, sdk.CodeInvalidRequest},
		"a tenant that is there already":          {func(d *edit.Document) error { return d.AddTenant("acme", token(1)) }, sdk.CodeConflict},
		"a name that is taken":                    {func(d *edit.Document) error { return d.Rename(edit.Tenant("acme"), "beta") }, sdk.CodeConflict},
		"to rename nobody":                        {func(d *edit.Document) error { return d.Rename(edit.Tenant("none"), "x") }, sdk.CodeInvalidRequest},
		"to rename what has no name":              {func(d *edit.Document) error { return d.Rename(edit.Providers(), "x") }, sdk.CodeInvalidRequest},
		"to remove nobody":                        {func(d *edit.Document) error { return d.Remove(edit.Tenant("none")) }, sdk.CodeInvalidRequest},
		"a block with no place":                   {func(d *edit.Document) error { return d.Add(full.In("rules", 1)) }, sdk.CodeInvalidRequest},
		"a block in one that has no place":        {func(d *edit.Document) error { return d.Add(full.In("rules", 1).In("limit", 0)) }, sdk.CodeInvalidRequest},
		"a block before the first":                {func(d *edit.Document) error { return d.Insert(full.In("rules", -1)) }, sdk.CodeInvalidRequest},
		"a block whose type is none":              {func(d *edit.Document) error { return d.Add(full.In("a {}\nb", 0)) }, sdk.CodeInvalidRequest},
		"a block of nobody":                       {func(d *edit.Document) error { return d.Add(edit.Provider("none").In("rules", 0)) }, sdk.CodeInvalidRequest},
		"to remove a block that is not there":     {func(d *edit.Document) error { return d.Remove(full.In("rules", 0)) }, sdk.CodeInvalidRequest},
		"to rename a block within":                {func(d *edit.Document) error { return d.Rename(full.In("rules", 0), "x") }, sdk.CodeInvalidRequest},
		"to unset a setting of nobody":            {func(d *edit.Document) error { return d.Unset(edit.Tenant("none"), "a") }, sdk.CodeInvalidRequest},
		"a token that is not there":               {func(d *edit.Document) error { return d.RemoveToken("acme", token(9)) }, sdk.CodeInvalidRequest},
		"a token for nobody":                      {func(d *edit.Document) error { return d.AddToken("none", token(9)) }, sdk.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := opened(t, plain)
			assert.ErrorIs(t, test.change(d), &sdk.Error{Code: test.code})
			assert.Equal(t, textOf(t, d), plain)
		})
	}
}

func TestALabelOrATextCannotBreakOutOfItsQuotes(t *testing.T) {
	const nasty = "a\" {\n}\ntenant \"x\n${env(\"A\")}%{ if true }\\"
	d, _ := opened(t, read(t, "plain.hcl"))
	assert.NilError(t, d.AddTenant(nasty, token(1)))
	assert.NilError(t, d.Set(edit.Tenant(nasty), "note", literal(t, nasty)))
	assert.NilError(t, d.Set(edit.Tenant(nasty), "map", literal(t, map[string]string{nasty: nasty})))
	assert.NilError(t, d.Rename(edit.Tenant(nasty), nasty+"2"))
	assert.Assert(t, d.Has(edit.Tenant(nasty+"2")))
	assert.Assert(t, !d.Has(edit.Tenant("x\n")))
	before := textOf(t, d)
	assert.NilError(t, d.Set(edit.Tenant(nasty+"2"), "note", literal(t, nasty)), "it reads as it was meant")
	assert.Equal(t, textOf(t, d), before)
}

func TestASecretIsWrittenSealedAndReplacedByAnother(t *testing.T) {
	ring, err := seal.ParseKeys(key)
	assert.NilError(t, err)
	d, _ := opened(t, "provider \"full\" {}\n")
	for _, secret := range []string{"hunter2", "hunter3"} {
		value, err := edit.Secret(ring, secret)
		assert.NilError(t, err)
		assert.NilError(t, d.Set(edit.Provider("full"), "api_key", value))
		text := textOf(t, d)
		assert.Assert(t, is.Regexp(`^provider "full" \{\n  api_key = sealed\("sb1:6d24e2af:[\w-]+"\)\n\}\n$`, text))
		_, sealed, _ := strings.Cut(text, `("`)
		sealed, _, _ = strings.Cut(sealed, `")`)
		got, err := ring.Open(sealed)
		assert.NilError(t, err)
		assert.Equal(t, got, secret)
	}
	_, err = edit.Secret(&seal.Keyring{}, "x")
	assert.ErrorContains(t, err, "no key")
}

func TestValuesThatCannotBeWritten(t *testing.T) {
	for _, value := range []any{nil, struct{}{}, []int{1}, func() {}} {
		_, err := edit.Literal(value)
		assert.Check(t, err != nil)
	}
}

func TestWhatTheFileComputes(t *testing.T) {
	d, _ := opened(t, "provider \"full\" {\n  a = env(\"A\")\n  b = 1 + 2\n  c = \"x${file(\"y\")}\"\n  d = [true ? 1 : 2]\n  e = \"plain\"\n  f = sealed(\"sb1:x\")\n  g = -1\n}\n")
	for setting, want := range map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": false, "f": false, "g": false, "none": false} {
		assert.Check(t, is.Equal(d.Computed(edit.Provider("full"), setting), want), setting)
	}
	assert.Check(t, !d.Computed(edit.Provider("none"), "a"))
}
