package watch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, paths ...string) *watch.Watcher {
	t.Helper()
	w := watch.New(hclog.NewNullLogger())
	w.Follow(paths)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

func told(t *testing.T, w *watch.Watcher) {
	t.Helper()
	select {
	case <-w.Changed():
	case <-time.After(20 * time.Second): // before the belt
		t.Fatal("the change was not seen")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".tmp", text)
	assert.NilError(t, os.Rename(path+".tmp", path))
}

func TestEveryWayToChangeAFileIsSeenAgainAndAgain(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string, n int){
		"written in place": func(t *testing.T, path string, n int) {
			t.Helper()
			write(t, path, fmt.Sprint(n))
		},
		"replaced by a rename": func(t *testing.T, path string, n int) {
			t.Helper()
			replace(t, path, fmt.Sprint(n))
		},
		"moved away and written anew, as editors do": func(t *testing.T, path string, n int) {
			t.Helper()
			assert.NilError(t, os.Rename(path, path+"~"))
			write(t, path, fmt.Sprint(n))
		},
		"removed": func(t *testing.T, path string, n int) {
			t.Helper()
			if n%2 == 0 {
				assert.NilError(t, os.Remove(path))
			} else {
				write(t, path, fmt.Sprint(n))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "sandbox.hcl")
			write(t, path, "0")
			w := start(t, path)
			for n := range 3 {
				change(t, path, n)
				told(t, w)
			}
		})
	}
}

// Kubernetes shows a ConfigMap as links to ..data, a link to a directory, which it
// replaces. No event names the file.
func TestTheSwapOfAConfigMapIsSeen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sandbox.hcl")
	version := func(n int) {
		t.Helper()
		data := fmt.Sprintf("..2026_%d", n)
		assert.NilError(t, os.Mkdir(filepath.Join(dir, data), 0o700))
		write(t, filepath.Join(dir, data, "sandbox.hcl"), fmt.Sprint(n))
		assert.NilError(t, os.Symlink(data, filepath.Join(dir, "..data_tmp")))
		assert.NilError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version(0)
	assert.NilError(t, os.Symlink("..data/sandbox.hcl", path))
	w := start(t, path)
	for n := 1; n < 4; n++ {
		version(n)
		told(t, w)
		text, err := os.ReadFile(path)
		assert.NilError(t, err)
		assert.Equal(t, string(text), fmt.Sprint(n))
	}
}

func TestAChangeBehindALinkIsSeen(t *testing.T) {
	there, here := t.TempDir(), t.TempDir()
	write(t, filepath.Join(there, "real.hcl"), "0")
	path := filepath.Join(here, "sandbox.hcl")
	assert.NilError(t, os.Symlink(filepath.Join(there, "real.hcl"), path))
	w := start(t, path)
	replace(t, filepath.Join(there, "real.hcl"), "1")
	told(t, w)
	assert.NilError(t, os.Remove(path))
	told(t, w)
}

func TestADirectoryIsFollowedWithItsEntries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "conf.d")
	w := start(t, dir)
	assert.NilError(t, os.Mkdir(dir, 0o700))
	told(t, w)
	for n := range 3 {
		write(t, filepath.Join(dir, fmt.Sprintf("%d.hcl", n)), "x")
		told(t, w)
	}
}

func TestWhatLiesBesideIsNobodysBusiness(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sandbox.hcl")
	write(t, path, "0")
	w := start(t, path)
	write(t, filepath.Join(dir, "broker.log"), "a line")
	replace(t, path, "1")
	told(t, w)
	// One event would have come for the other file, before; it is settled by now.
	select {
	case <-w.Changed():
		t.Fatal("told twice")
	default:
	}
}
