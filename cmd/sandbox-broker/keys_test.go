package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// runOn runs a command with a standard input.
func runOn(t *testing.T, input string, args ...string) outcome {
	t.Helper()
	var out, errOut strings.Builder
	term := &terminal{in: strings.NewReader(input), out: &out, err: &errOut, style: config.Style{Width: 100}}
	code := run(t.Context(), args, term, nil)
	return outcome{code, out.String(), errOut.String()}
}

const tenantDemo = "tenant \"demo\" {\n  token_sha256 = [\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]\n}\n"

func TestASecretIsSealedAndUnsealed(t *testing.T) {
	t.Setenv(config.KeysVariable, "")
	dir := fs.NewDir(t, "keys", fs.WithFile("sandbox.hcl", "key_file = \"sealing.keys\"\n"))
	keys, file := dir.Join("sealing.keys"), dir.Join("sandbox.hcl")

	got := runOn(t, "", "keygen", keys)
	assert.Equal(t, got.code, 0, got.err)
	info, err := os.Stat(keys)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
	again := runOn(t, "", "keygen", keys)
	assert.Equal(t, again.code, 1)
	assert.Assert(t, is.Contains(again.err, "is there already"))

	sealed := runOn(t, "hunter2\n", "seal", "-c", file)
	assert.Equal(t, sealed.code, 0, sealed.err)
	assert.Assert(t, is.Regexp(`^sealed\("sb1:[0-9a-f]{8}:[\w-]+"\)\n$`, sealed.out))
	for _, args := range [][]string{
		{"unseal", "-c", file, strings.TrimSpace(sealed.out)},
		{"unseal", "--key-file", keys, regexp.MustCompile(`"(.*)"`).FindStringSubmatch(sealed.out)[1]},
		{"unseal", "--key-file", keys},
	} {
		got := runOn(t, sealed.out, args...)
		assert.Equal(t, got.code, 0, got.err)
		assert.Equal(t, got.out, "hunter2\n")
	}
}

func TestWhatCannotBeSealedOrUnsealed(t *testing.T) {
	t.Setenv(config.KeysVariable, "")
	dir := fs.NewDir(t, "keys",
		fs.WithFile("sandbox.hcl", "listen = 5\n"),
		fs.WithFile("keys", "sbkey_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n", fs.WithMode(0o600)),
		fs.WithFile("open", "sbkey_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n", fs.WithMode(0o644)))
	for name, test := range map[string]struct {
		input string
		args  []string
		want  string
	}{
		"no key":                   {"hunter2", []string{"seal", "-c", dir.Join("sandbox.hcl")}, "`sandbox-broker keygen FILE` makes one"},
		"no configuration":         {"hunter2", []string{"seal", "-c", dir.Join("none.hcl")}, "No such file or directory"},
		"a key that others read":   {"hunter2", []string{"seal", "--key-file", dir.Join("open")}, "chmod 600 it"},
		"nothing":                  {"\n", []string{"seal", "--key-file", dir.Join("keys")}, "the value is empty"},
		"a value that is too long": {strings.Repeat("hunter2", 10_000), []string{"seal", "--key-file", dir.Join("keys")}, "too long"},
		"what is no text":          {"hunter2\xff", []string{"seal", "--key-file", dir.Join("keys")}, "not UTF-8 text"},
		"what was never sealed":    {"hunter2", []string{"unseal", "--key-file", dir.Join("keys")}, "this is not what `sandbox-broker seal` prints"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runOn(t, test.input, test.args...)
			assert.Equal(t, got.code, 1)
			assert.Equal(t, got.out, "")
			assert.Assert(t, is.Contains(got.err, test.want))
			assert.Assert(t, !strings.Contains(got.err, "hunter2"))
		})
	}
}

func TestAPersonIsAskedForTheSecret(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(config.KeysVariable, "sbkey_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	var out, errOut strings.Builder
	term := &terminal{in: strings.NewReader("not read"), out: &out, err: &errOut, prompt: func(text string) (string, error) {
		assert.Equal(t, text, "The value to seal: ")
		return "hunter2", nil
	}}
	assert.Equal(t, run(t.Context(), []string{"seal"}, term, nil), 0, errOut.String())
	assert.Equal(t, runOn(t, out.String(), "unseal").out, "hunter2\n")
}

func TestKeysAreRotated(t *testing.T) {
	t.Setenv(config.KeysVariable, "")
	dir := fs.NewDir(t, "keys", fs.WithFile("sandbox.hcl", ""), fs.WithDir("conf.d"))
	keys, file, more := dir.Join("keys"), dir.Join("sandbox.hcl"), dir.Join("conf.d/more.hcl")
	assert.Equal(t, runOn(t, "", "keygen", keys).code, 0)
	seal := func() string {
		return strings.TrimSpace(runOn(t, "hunter2", "seal", "--key-file", keys).out)
	}
	first := seal()
	assert.NilError(t, os.WriteFile(file, []byte("key_file = \"keys\" # here\ninclude = [\"conf.d/*.hcl\"]\nprovider   \"cloud\" {\n  api_key="+first+"   # odd\n}\n"+tenantDemo), 0o600))
	assert.NilError(t, os.WriteFile(more, []byte("provider \"b\" {\n  api_key = "+first+"\n  other = env(\"NOT_SET_HERE\")\n}\nproviders { active = \"b\" }\n"), 0o640))

	assert.Assert(t, is.Contains(runOn(t, "", "rotate", "-c", file).out, "Nothing to do: 2 values sealed with the key"))
	got := runOn(t, "", "keygen", "--add", keys)
	assert.Equal(t, got.code, 0, got.err)
	got = runOn(t, "", "rotate", "-c", file)
	assert.Equal(t, got.code, 0, got.err)
	assert.Assert(t, is.Contains(got.out, "2 values sealed anew with the key"))

	text, err := os.ReadFile(file)
	assert.NilError(t, err)
	m := regexp.MustCompile(`(?s)^(key_file = "keys" # here\n.*api_key=)(sealed\(".*"\))(   # odd\n.*)$`).FindStringSubmatch(string(text))
	assert.Assert(t, m != nil, "%s", text)
	assert.Assert(t, m[2] != first)

	// The old key can go now.
	both, err := os.ReadFile(keys)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(keys, []byte(strings.SplitAfter(string(both), "\n")[0]), 0o600))
	assert.Equal(t, runOn(t, "", "unseal", "-c", file, m[2]).out, "hunter2\n")
	assert.Equal(t, runOn(t, "", "unseal", "-c", file, first).code, 1)
}

func TestRotateTellsWhatItCannotDo(t *testing.T) {
	t.Setenv(config.KeysVariable, "sbkey_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	dir := fs.NewDir(t, "keys", fs.WithFile("sandbox.hcl", "provider \"a\" {\n  x = sealed(env(\"X\"))\n}\n"), fs.WithFile("broken.hcl", "provider {\n"))
	got := runOn(t, "", "rotate", "-c", dir.Join("sandbox.hcl"))
	assert.Equal(t, got.code, 0)
	assert.Assert(t, is.Contains(got.err, dir.Join("sandbox.hcl")+":2"))
	assert.Equal(t, runOn(t, "", "rotate", "-c", dir.Join("broken.hcl")).code, 1)
}
