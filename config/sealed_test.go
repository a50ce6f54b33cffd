package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

func sealedBy(t *testing.T, key, value string) string {
	t.Helper()
	ring, err := seal.ParseKeys(key)
	assert.NilError(t, err)
	text, err := ring.Seal(value)
	assert.NilError(t, err)
	return fmt.Sprintf("sealed(%q)", text)
}

func apiKey(t *testing.T, cfg *config.Config) any {
	t.Helper()
	settings, diags := cfg.Providers[0].Settings(fullSchema())
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	return settings["api_key"]
}

func noEnv(string) (string, bool) { return "", false }

func TestKeysComeFromTheKeyFileAndFromTheEnvironment(t *testing.T) {
	one, two := seal.NewKey(), seal.NewKey()
	dir := fs.NewDir(t, "config",
		fs.WithFile("sandbox.hcl", "key_file = \"keys\"\n"+tenantBlock("a")+"provider \"full\" {\n  api_key = "+
			sealedBy(t, one, "0123456789")+"\n  headers = { a = "+sealedBy(t, two, "x")+" }\n}\n"),
		fs.WithFile("keys", "# the first\n"+one+"\n", fs.WithMode(0o600)))
	env := func(name string) (string, bool) { return two, name == config.KeysVariable }
	cfg, diags := config.Load(dir.Join("sandbox.hcl"), config.WithEnv(env))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.Equal(t, apiKey(t, cfg), "0123456789")
	assert.Assert(t, is.Len(cfg.Keyring().IDs(), 2))
	first, err := cfg.Keyring().Seal("x")
	assert.NilError(t, err)
	ring, err := seal.ParseKeys(one)
	assert.NilError(t, err)
	assert.Assert(t, ring.OpensFirst(first), "the key file's comes first")

	_, diags = config.Load(dir.Join("sandbox.hcl"), config.WithEnv(noEnv))
	assert.Assert(t, is.Len(diags, 1))
	assert.Equal(t, diags[0].Start.Line, 7)
	assert.Assert(t, is.Contains(diags[0].Detail, "the key is not among those that are known here"))
}

// A mistake in the keys is told once where they come from, and to each value that
// cannot be opened for it.
func TestMistakesInTheKeys(t *testing.T) {
	for name, test := range map[string]struct {
		root, env string
		mode      os.FileMode
		want      []string
	}{
		"no keys at all":                {"", "", 0o600, []string{"3: there is no key here"}},
		"others may read the key file":  {`key_file = "keys"`, "", 0o644, []string{"1: Others have access to it (mode 0644); chmod 600 it.", "3: the keys cannot be read: see key_file"}},
		"the key file is not there":     {`key_file = "gone"`, testKey, 0o600, []string{"1: No such file or directory.", "3: the keys cannot be read: see key_file"}},
		"the key file is no text":       {`key_file = 5`, testKey, 0o600, []string{"1: key_file must be a string.", "3: the keys cannot be read: see key_file"}},
		"the path is not known":         {`key_file = env("GONE")`, testKey, 0o600, []string{"1: ", "3: the keys cannot be read: see key_file"}},
		"the environment holds no keys": {"", "hunter2", 0o600, []string{"3: the keys cannot be read: see SANDBOX_BROKER_KEYS", "0: The environment variable SANDBOX_BROKER_KEYS is wrong: line 1 does not begin with sbkey_."}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := fs.NewDir(t, "config",
				fs.WithFile("sandbox.hcl", test.root+"\nprovider \"full\" {\n  api_key = "+sealedBy(t, testKey, "x")+"\n}\n"+tenantBlock("a")),
				fs.WithFile("keys", testKey, fs.WithMode(test.mode)))
			env := func(name string) (string, bool) { return test.env, name == config.KeysVariable && test.env != "" }
			_, diags := config.Load(dir.Join("sandbox.hcl"), config.WithEnv(env))
			assert.Assert(t, is.Len(diags, len(test.want)), "%v", diags)
			for i, want := range test.want {
				line, text, _ := strings.Cut(want, ": ")
				assert.Equal(t, fmt.Sprint(diags[i].Start.Line), line, "%v", diags)
				assert.Assert(t, strings.Contains(diags[i].Detail, text), "%v", diags)
			}
			assert.Assert(t, !strings.Contains(diags.Error(), "hunter2"))
		})
	}
}

func TestTheKeysAreReadWhateverElseIsWrong(t *testing.T) {
	dir := fs.NewDir(t, "config",
		fs.WithFile("sandbox.hcl", "key_file = \"keys\"\nlisten = 5\nprovider \"x\" { api_key = sealed(\"none\") }\n"),
		fs.WithFile("keys", testKey, fs.WithMode(0o600)))
	ring, diags := config.LoadKeys(dir.Join("sandbox.hcl"), config.WithEnv(noEnv))
	assert.Assert(t, is.Len(diags, 0))
	assert.Assert(t, is.Len(ring.IDs(), 1))

	_, diags = config.LoadKeys("../sandbox.hcl", config.WithEnv(noEnv))
	assert.ErrorContains(t, diags, "There is no key here. `sandbox-broker keygen FILE` makes one")
}

// The file is watched also while it is wrong, since it is where to mend it.
func TestTheKeyFileIsAmongTheFiles(t *testing.T) {
	dir := fs.NewDir(t, "config",
		fs.WithFile("sandbox.hcl", "key_file = \"keys\"\n"+smallest),
		fs.WithFile("keys", testKey, fs.WithMode(0o644)))
	revision := func() string {
		cfg, _ := config.Load(dir.Join("sandbox.hcl"), config.WithEnv(noEnv))
		last := cfg.Files()[1]
		assert.Equal(t, last.Kind, config.FileKeys)
		assert.Equal(t, last.Path, dir.Join("keys"))
		return cfg.Revision
	}
	wrong := revision()
	assert.NilError(t, os.Chmod(dir.Join("keys"), 0o600))
	assert.Assert(t, wrong != revision(), "to mend the mode makes it another configuration")
}
