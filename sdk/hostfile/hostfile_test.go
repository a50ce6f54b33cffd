package hostfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/hostfile"
)

func TestWhatOthersMayChangeIsFound(t *testing.T) {
	asRoot := os.Geteuid() == 0
	for name, test := range map[string]struct {
		change func(dir, file string) error
		want   string
		root   bool
	}{
		"nothing":                       {change: func(string, string) error { return nil }},
		"the file, by everybody":        {change: func(_, file string) error { return os.Chmod(file, 0o757) }, want: "everybody may write it (chmod o-w)"},
		"the file, by a group":          {change: func(_, file string) error { return os.Chmod(file, 0o775) }, want: "group 12345 may write it (chmod g-w)", root: true},
		"the file, by its owner":        {change: func(_, file string) error { return os.Chown(file, 12345, 0) }, want: "it belongs to user 12345", root: true},
		"the directory, by everybody":   {change: func(dir, _ string) error { return os.Chmod(dir, 0o777) }, want: "everybody may write it (chmod o-w)"},
		"the directory, by its owner":   {change: func(dir, _ string) error { return os.Chown(dir, 12345, 0) }, want: "it belongs to user 12345", root: true},
		"a file that is none":           {change: func(_, file string) error { return os.Remove(file) }, want: "no such file"},
		"a directory that keeps others": {change: func(dir, _ string) error { return os.Chmod(dir, 0o1777) }, want: "everybody may write it (chmod o-w)"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.root && !asRoot {
				t.Skip("only root can give files away")
			}
			dir, links := filepath.Join(t.TempDir(), "d"), t.TempDir()
			file, link := filepath.Join(dir, "program"), filepath.Join(links, "link")
			assert.NilError(t, os.Mkdir(dir, 0o755))
			assert.NilError(t, os.WriteFile(file, nil, 0o755))
			if asRoot {
				assert.NilError(t, os.Chown(file, 0, 12345))
			}
			assert.NilError(t, os.Symlink(file, link))
			assert.NilError(t, test.change(dir, file))
			for _, path := range []string{file, link} {
				err := hostfile.CheckWithDirectories(path)
				if test.want == "" {
					assert.NilError(t, err)
				} else {
					assert.ErrorContains(t, err, test.want)
				}
			}
		})
	}
}

func TestWhoeverMayChangeALinkMayChangeWhereItLeads(t *testing.T) {
	links, dir := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "program")
	assert.NilError(t, os.WriteFile(file, nil, 0o755))
	link := filepath.Join(links, "link")
	assert.NilError(t, os.Symlink(file, link))
	assert.NilError(t, os.Chmod(links, 0o777))
	assert.NilError(t, hostfile.CheckWithDirectories(file))
	assert.ErrorContains(t, hostfile.CheckWithDirectories(link), links+": everybody may write it")
}
