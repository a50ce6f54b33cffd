package contexts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/contexts"
)

func TestWhereContextsAre(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"below the home":                {map[string]string{"HOME": "/home/a"}, "/home/a/.config/sandbox-broker/contexts.json"},
		"where XDG says":                {map[string]string{"HOME": "/home/a", "XDG_CONFIG_HOME": "/etc/a"}, "/etc/a/sandbox-broker/contexts.json"},
		"a relative XDG does not count": {map[string]string{"HOME": "/home/a", "XDG_CONFIG_HOME": "a"}, "/home/a/.config/sandbox-broker/contexts.json"},
		"nowhere":                       {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := contexts.Path(func(name string) string { return c.env[name] })
			assert.Equal(t, path, c.want)
			assert.Equal(t, err != nil, c.want == "")
		})
	}
}

func TestContextsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "contexts.json")
	file, err := contexts.Load(path)
	assert.NilError(t, err, "a file that is not there holds nothing")
	assert.NilError(t, file.Set("a", contexts.Context{Address: "http://127.0.0.1:1", Token: "s3cret"}))
	assert.NilError(t, file.Set("b", contexts.Context{Address: "https://b.example.com", CertFile: "c", KeyFile: "k"}))
	assert.Equal(t, file.Current, "a")
	assert.NilError(t, file.Use("b"))
	assert.NilError(t, contexts.Save(path, file))
	info, err := os.Stat(path)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
	again, err := contexts.Load(path)
	assert.NilError(t, err)
	assert.DeepEqual(t, again, file)

	assert.NilError(t, again.Remove("b"))
	assert.Equal(t, again.Current, "")
	for _, err := range []error{again.Remove("b"), again.Use("b")} {
		assert.ErrorContains(t, err, `no context "b"`)
	}
}

func TestAFileThatOthersMayReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts.json")
	assert.NilError(t, contexts.Save(path, contexts.File{}))
	for _, mode := range []os.FileMode{0o640, 0o604, 0o622} {
		assert.NilError(t, os.Chmod(path, mode))
		_, err := contexts.Load(path)
		assert.ErrorIs(t, err, contexts.ErrOpenToOthers)
		assert.ErrorContains(t, err, "chmod 600 "+path)
	}
}

func TestAContextThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		name    string
		context contexts.Context
		want    string
	}{
		"a name with a blank":      {"a b", contexts.Context{Address: "http://a"}, "must begin with"},
		"no name":                  {"", contexts.Context{Address: "http://a"}, "must begin with"},
		"a name that is a flag":    {"-a", contexts.Context{Address: "http://a"}, "must begin with"},
		"no address":               {"a", contexts.Context{}, "must be a URL"},
		"a host alone":             {"a", contexts.Context{Address: "example.com:80"}, "must be a URL"},
		"another scheme":           {"a", contexts.Context{Address: "ftp://a"}, "must be a URL"},
		"a password":               {"a", contexts.Context{Address: "http://user:hunter2@a"}, "no password"},
		"a certificate and no key": {"a", contexts.Context{Address: "http://a", CertFile: "x"}, "come together"},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&contexts.File{}).Set(c.name, c.context)
			assert.ErrorContains(t, err, c.want)
			assert.Check(t, !strings.Contains(err.Error(), "hunter2"))
		})
	}
}

func TestAFileThatIsBroken(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":                         {`{"contexts": {"a": {"token": "hunter2"`, "it is no JSON"},
		"half a word":                     {`{"contexts": hunter2}`, "at byte 14"},
		"another type":                    {`{"contexts": {"a": {"token": ["hunter2"]}}}`, "of the wrong type"},
		"a current one that is not there": {`{"current": "b", "contexts": {}}`, `no context "b"`},
		"an address that is none":         {`{"contexts": {"a": {"address": "x"}}}`, "must be a URL"},
		"too much":                        {strings.Repeat(" ", 1<<20) + "{}", "larger than a megabyte"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "contexts.json")
			assert.NilError(t, os.WriteFile(path, []byte(c.text), 0o600))
			_, err := contexts.Load(path)
			assert.ErrorContains(t, err, c.want)
			assert.Check(t, is.Contains(err.Error(), path))
			assert.Check(t, !strings.Contains(err.Error(), "hunter2"))
		})
	}
}

func FuzzAFileIsReadOrRefused(f *testing.F) {
	f.Add(`{"current": "a", "contexts": {"a": {"address": "http://a", "token": "t"}}}`)
	f.Add(`{"contexts": {"": {}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "contexts.json")
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
		file, err := contexts.Load(path)
		if err != nil {
			return
		}
		assert.NilError(t, contexts.Save(path, file))
		again, err := contexts.Load(path)
		assert.NilError(t, err)
		assert.DeepEqual(t, again, file)
	})
}
