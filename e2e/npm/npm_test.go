package npm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func project(t *testing.T, lock string) string {
	t.Helper()
	dir := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte("{}"), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "package-lock.json"), []byte(lock), 0o600))
	return dir
}

func TestPackagesAreInstalledOnceForEachLockFile(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "npm")
	var installs int
	install := func(_ context.Context, dir string) error {
		installs++
		return os.Mkdir(filepath.Join(dir, "node_modules"), 0o755)
	}
	first, err := fetch(t.Context(), store, project(t, "1"), install)
	assert.NilError(t, err)
	same, err := fetch(t.Context(), store, project(t, "1"), install)
	assert.NilError(t, err)
	other, err := fetch(t.Context(), store, project(t, "2"), install)
	assert.NilError(t, err)
	assert.Equal(t, first, same)
	assert.Check(t, first != other)
	assert.Equal(t, installs, 2)
	for _, modules := range []string{first, other} {
		_, err := os.Stat(modules)
		assert.NilError(t, err)
	}
}

func TestARegistryMayFailTwice(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		failures int
		says     string
	}{{0, ""}, {2, ""}, {3, "no registry"}} {
		synctest.Test(t, func(t *testing.T) {
			store := filepath.Join(t.TempDir(), "npm")
			var calls int
			_, err := fetch(t.Context(), store, project(t, ""), func(_ context.Context, dir string) error {
				if calls++; calls <= test.failures {
					return errors.New("no registry")
				}
				return os.Mkdir(filepath.Join(dir, "node_modules"), 0o755)
			})
			left, readErr := filepath.Glob(filepath.Join(store, "part.*"))
			assert.NilError(t, readErr)
			assert.Check(t, is.Len(left, 0), "what was half installed is gone")
			if test.says == "" {
				assert.NilError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.says)
		})
	}
}
