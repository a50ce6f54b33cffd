package packagelayers_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/packagelayers"
)

// options of a store in a directory of its own.
func options(t *testing.T) packagelayers.Options {
	t.Helper()
	return packagelayers.Options{Dir: filepath.Join(t.TempDir(), "store"), Bytes: 1 << 20, Age: time.Hour, Logger: hclog.NewNullLogger()}
}

func open(t *testing.T, o packagelayers.Options) *packagelayers.Store {
	t.Helper()
	s, err := packagelayers.Open(o)
	assert.NilError(t, err)
	return s
}

func key(name string) string { return packagelayers.Key(sha256.Sum256([]byte(name))) }

// archive has files by their names.
func archive(t *testing.T, files map[string]string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		assert.NilError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), ModTime: time.Unix(1700000000, 0)}))
		_, err := w.Write([]byte(files[name]))
		assert.NilError(t, err)
	}
	assert.NilError(t, w.Close())
	return &b
}

// add adds a layer of so many bytes and returns its ID. Nobody uses it then.
func add(t *testing.T, s *packagelayers.Store, name string, size int) string {
	t.Helper()
	l, err := s.Add(t.Context(), key(name), archive(t, map[string]string{name + ".py": strings.Repeat("x", size)}), packagelayers.Installed{})
	assert.NilError(t, err)
	l.Release()
	return l.ID
}

// has says whether a set has a layer.
func has(t *testing.T, s *packagelayers.Store, name string) bool {
	t.Helper()
	l, err := s.Use(t.Context(), key(name))
	assert.NilError(t, err)
	if l == nil {
		return false
	}
	l.Release()
	return true
}

// on says which layers are on the disk.
func on(t *testing.T, s *packagelayers.Store) (ids []string) {
	t.Helper()
	entries, err := os.ReadDir(s.Dir())
	assert.NilError(t, err)
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}

// usedBefore has a set look as if it was used last that long ago.
func usedBefore(t *testing.T, o packagelayers.Options, name string, ago time.Duration) {
	t.Helper()
	when := time.Now().Add(-ago)
	assert.NilError(t, os.Chtimes(filepath.Join(o.Dir, "sets", key(name)+".json"), when, when))
}

func TestALayerIsFoundByItsKeyInEveryProcess(t *testing.T) {
	o := options(t)
	s := open(t, o)
	none, err := s.Use(t.Context(), key("a"))
	assert.NilError(t, err)
	assert.Assert(t, none == nil)

	made, err := s.Add(t.Context(), key("a"), archive(t, map[string]string{"a.py": "x = 1", "a/b.py": ""}), packagelayers.Installed{Stdout: []byte("done\n"), Stderr: []byte("a warning\n")})
	assert.NilError(t, err)
	defer made.Release()
	for name, store := range map[string]*packagelayers.Store{"this": s, "another": open(t, o)} {
		t.Run(name, func(t *testing.T) {
			found, err := store.Use(t.Context(), key("a"))
			assert.NilError(t, err)
			defer found.Release()
			assert.Equal(t, found.ID, made.ID)
			assert.DeepEqual(t, found.Installed, made.Installed)
			text, err := os.ReadFile(filepath.Join(store.Dir(), found.ID, "a.py"))
			assert.NilError(t, err)
			assert.Equal(t, string(text), "x = 1")
			info, err := os.Stat(filepath.Join(store.Dir(), found.ID, "a.py"))
			assert.NilError(t, err)
			assert.Equal(t, info.ModTime().Unix(), int64(1700000000), "compiled Python is of a source of that time")
			assert.Equal(t, info.Mode().Perm(), fs.FileMode(0o444))
		})
	}
	info, err := os.Stat(s.Dir())
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), fs.FileMode(0o711), "code that sees it cannot list what others have")
}

func TestTheSamePackagesAreKeptOnce(t *testing.T) {
	s := open(t, options(t))
	var ids []string
	for _, set := range []string{"x", "y"} {
		l, err := s.Add(t.Context(), key(set), archive(t, map[string]string{"a.py": "1"}), packagelayers.Installed{})
		assert.NilError(t, err)
		defer l.Release()
		ids = append(ids, l.ID)
	}
	assert.Equal(t, ids[0], ids[1])
	assert.Check(t, is.Len(on(t, s), 1))
	assert.Check(t, has(t, s, "x") && has(t, s, "y"))
}

func TestWhatIsNotWholeIsNoLayer(t *testing.T) {
	broken := errors.New("the sandbox has died")
	for name, content := range map[string]io.Reader{
		"a sender that dies":          io.MultiReader(io.LimitReader(archive(t, map[string]string{"a": strings.Repeat("x", 5000)}), 3000), errorReader{broken}),
		"an archive without an end":   io.LimitReader(archive(t, map[string]string{"a": strings.Repeat("x", 5000)}), 3000),
		"a name that leads out":       archive(t, map[string]string{"../a": ""}),
		"more than all may have":      archive(t, map[string]string{"a": strings.Repeat("x", 2<<20)}),
		"what is no archive at all":   strings.NewReader(strings.Repeat("junk", 1000)),
		"just too much with its name": archive(t, map[string]string{"a": strings.Repeat("x", 1<<20)}),
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			s := open(t, o)
			_, err := s.Add(t.Context(), key("a"), content, packagelayers.Installed{})
			assert.Assert(t, err != nil)
			assert.Check(t, !has(t, s, "a"))
			assert.Check(t, is.Len(on(t, s), 0))
			scratch, err := os.ReadDir(filepath.Join(o.Dir, "scratch"))
			assert.NilError(t, err)
			assert.Check(t, is.Len(scratch, 0))
			add(t, s, "a", 10)
			assert.Check(t, has(t, s, "a"))
		})
	}
}

// errorReader fails.
type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

func TestWhatAKilledProcessLeftIsRemoved(t *testing.T) {
	o := options(t)
	s := open(t, o)
	add(t, s, "good", 10)
	// It was killed while it wrote, and between its last two steps.
	assert.NilError(t, os.MkdirAll(filepath.Join(o.Dir, "scratch", "layer", "half"), 0o700))
	without := add(t, s, "of no set", 10)
	assert.NilError(t, os.Remove(filepath.Join(o.Dir, "sets", key("of no set")+".json")))

	s = open(t, o)
	assert.NilError(t, s.Collect())
	assert.Check(t, has(t, s, "good"))
	assert.Check(t, !slices.Contains(on(t, s), without))
	scratch, err := os.ReadDir(filepath.Join(o.Dir, "scratch"))
	assert.NilError(t, err)
	assert.Check(t, is.Len(scratch, 0))
}

func TestALayerThatWasChangedIsNotUsed(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir string){
		"content": func(t *testing.T, dir string) {
			assert.NilError(t, os.WriteFile(filepath.Join(dir, "a.py"), []byte("y"), 0o600))
		},
		"a file more": func(t *testing.T, dir string) {
			assert.NilError(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), nil, 0o644))
		},
		"a file less": func(t *testing.T, dir string) { assert.NilError(t, os.Remove(filepath.Join(dir, "a.py"))) },
		"a link": func(t *testing.T, dir string) {
			assert.NilError(t, os.Remove(filepath.Join(dir, "a.py")))
			assert.NilError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "a.py")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			s := open(t, o)
			id := add(t, s, "a", 1)
			change(t, filepath.Join(s.Dir(), id))
			s = open(t, o) // each process looks once
			_, err := s.Hold(t.Context(), id)
			assert.ErrorIs(t, err, fs.ErrNotExist)
			assert.Check(t, !has(t, s, "a"))
			assert.Equal(t, add(t, s, "a", 1), id)
			assert.Check(t, has(t, open(t, o), "a"), "what is put in its place is whole")
		})
	}
	t.Run("a record", func(t *testing.T) {
		o := options(t)
		s := open(t, o)
		add(t, s, "a", 1)
		assert.NilError(t, os.WriteFile(filepath.Join(o.Dir, "sets", key("a")+".json"), []byte(`{"Layer": "../../etc"}`), 0o600))
		assert.Check(t, !has(t, s, "a"))
	})
}

func TestTheLongestUnusedGoesFirst(t *testing.T) {
	o := options(t)
	s := open(t, o)
	for _, name := range []string{"a", "b", "c"} {
		add(t, s, name, 300_000)
	}
	usedBefore(t, o, "a", 3*time.Minute)
	usedBefore(t, o, "b", 2*time.Minute)
	usedBefore(t, o, "c", time.Minute)
	assert.Check(t, has(t, s, "a")) // which is a use
	add(t, s, "d", 300_000)
	assert.Check(t, has(t, s, "a") && !has(t, s, "b") && has(t, s, "c") && has(t, s, "d"))
	assert.Check(t, is.Len(on(t, s), 3))
}

func TestWhatIsInUseStays(t *testing.T) {
	o := options(t)
	s := open(t, o)
	id := add(t, s, "held", 600_000)
	other := open(t, o) // as another process has it
	release, err := other.Hold(t.Context(), id)
	assert.NilError(t, err)
	_, err = s.Add(t.Context(), key("more"), archive(t, map[string]string{"m": strings.Repeat("m", 600_000)}), packagelayers.Installed{})
	assert.ErrorIs(t, err, packagelayers.ErrNoRoom)
	assert.DeepEqual(t, on(t, s), []string{id})
	release()
	release() // once counts
	add(t, s, "more", 600_000)
	assert.Check(t, !slices.Contains(on(t, s), id))
	_, err = s.Hold(t.Context(), id)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = s.Hold(t.Context(), "../x")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestWhatSnapshotsNeedStays(t *testing.T) {
	o := options(t)
	needed := map[string]bool{}
	var unknown error
	o.Needed = func() (map[string]bool, error) { return needed, unknown }
	s := open(t, o)
	id := add(t, s, "a", 10)
	needed[id] = true
	o.Age = time.Nanosecond
	s = open(t, o)
	assert.NilError(t, s.Collect())
	assert.DeepEqual(t, on(t, s), []string{id})
	assert.Check(t, !has(t, s, "a"), "it is too old for another instance all the same")
	delete(needed, id)
	unknown = errors.New("no list")
	assert.ErrorIs(t, s.Collect(), unknown)
	assert.DeepEqual(t, on(t, s), []string{id})
	unknown = nil
	assert.NilError(t, s.Collect())
	assert.Check(t, is.Len(on(t, s), 0))
}

func TestALayerIsNotUsedForEver(t *testing.T) {
	o := options(t)
	add(t, open(t, o), "a", 10)
	o.Age = time.Nanosecond
	s := open(t, o)
	assert.Check(t, !has(t, s, "a"))
	assert.NilError(t, s.Collect())
	assert.Check(t, is.Len(on(t, s), 0))
}

func TestWhoAddsCanStopToWait(t *testing.T) {
	s := open(t, options(t))
	reading, write := io.Pipe()
	begun := make(chan error, 1)
	first := make(chan error, 1)
	go func() {
		_, err := s.Add(t.Context(), key("slow"), reading, packagelayers.Installed{})
		first <- err
	}()
	go func() { _, err := write.Write(make([]byte, 100)); begun <- err }()
	assert.NilError(t, <-begun) // it is being read
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Add(ctx, key("late"), archive(t, nil), packagelayers.Installed{})
	assert.ErrorIs(t, err, context.Canceled)
	assert.NilError(t, s.Collect(), "nothing is removed meanwhile")
	assert.NilError(t, write.CloseWithError(errors.New("gone")))
	assert.ErrorContains(t, <-first, "gone")
}

func TestAFullDiskLeavesNothing(t *testing.T) {
	o := options(t)
	assert.NilError(t, os.Mkdir(o.Dir, 0o700))
	if err := unix.Mount("tmpfs", o.Dir, "tmpfs", 0, "size=256k"); errors.Is(err, unix.EPERM) {
		binaries.Missing(t, "only root can have a small file system")
	} else {
		assert.NilError(t, err)
	}
	defer func() { assert.Check(t, unix.Unmount(o.Dir, unix.MNT_DETACH)) }()
	s := open(t, o)
	add(t, s, "small", 100)
	_, err := s.Add(t.Context(), key("large"), archive(t, map[string]string{"l": strings.Repeat("l", 500_000)}), packagelayers.Installed{})
	assert.ErrorIs(t, err, unix.ENOSPC)
	assert.Check(t, has(t, s, "small") && !has(t, s, "large"))
	add(t, s, "another", 100_000)
}

// heldBy is the variable that has this test program be another process, which uses the layers
// of a store.
const heldBy = "PACKAGE_LAYERS_HELD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(heldBy); dir != "" {
		os.Exit(holdAndAdd(dir))
	}
	os.Exit(m.Run())
}

// holdAndAdd holds the layers that there are, begins to add another one, says so and waits to
// be killed.
func holdAndAdd(dir string) int {
	s, err := packagelayers.Open(packagelayers.Options{Dir: dir, Bytes: 1 << 20, Age: time.Hour, Logger: hclog.NewNullLogger()})
	if err != nil {
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	entries, _ := os.ReadDir(s.Dir())
	for _, e := range entries {
		if _, err := s.Hold(ctx, e.Name()); err != nil {
			return 1
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if w.WriteHeader(&tar.Header{Name: "half.py", Mode: 0o644, Size: 1 << 19}) != nil {
		return 1
	}
	_, err = s.Add(ctx, key("half"), io.MultiReader(&b, saysAndWaits{ctx}), packagelayers.Installed{})
	return len(err.Error())
}

// saysAndWaits says on standard output that it is read, and returns nothing before the end.
type saysAndWaits struct{ ctx context.Context }

func (r saysAndWaits) Read([]byte) (int, error) {
	_, _ = os.Stdout.WriteString("begun\n")
	<-r.ctx.Done()
	return 0, r.ctx.Err()
}

func TestAKilledProcessHoldsNothing(t *testing.T) {
	o := options(t)
	s := open(t, o)
	id := add(t, s, "held", 600_000)
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), heldBy+"="+o.Dir)
	out, err := other.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, other.Start())
	_, err = io.ReadFull(out, make([]byte, len("begun\n")))
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Add(ctx, key("more"), archive(t, nil), packagelayers.Installed{})
	assert.ErrorIs(t, err, context.Canceled, "the other process adds one")

	assert.NilError(t, other.Process.Kill())
	_ = other.Wait() // it was killed
	scratch, err := os.ReadDir(filepath.Join(o.Dir, "scratch"))
	assert.NilError(t, err)
	assert.Check(t, len(scratch) > 0, "it was killed half way")
	assert.Check(t, has(t, s, "held") && !has(t, s, "half"))
	add(t, s, "more", 600_000) // for which the other one's has to go
	assert.Check(t, !slices.Contains(on(t, s), id))
	scratch, err = os.ReadDir(filepath.Join(o.Dir, "scratch"))
	assert.NilError(t, err)
	assert.Check(t, is.Len(scratch, 0))
}
