package guest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
)

func TestProgramsAreFoundWhereImagesHaveThem(t *testing.T) {
	local, system := filepath.Join(t.TempDir(), "local"), filepath.Join(t.TempDir(), "system")
	put := func(mode os.FileMode, paths ...string) {
		for _, path := range paths {
			assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			assert.NilError(t, os.WriteFile(path, nil, mode))
		}
	}
	put(0o755, system+"/python3.11", local+"/python3", system+"/nodejs", system+"/npm")
	put(0o644, system+"/bash") // no program
	assert.NilError(t, os.Symlink("python3.11", system+"/python3"))
	assert.NilError(t, os.MkdirAll(local+"/npm", 0o755)) // nor this
	dirs := []string{local, system}

	got := findPrograms(dirs)
	assert.DeepEqual(t, got.interpreters, map[string]string{Python: local + "/python3", JavaScript: system + "/nodejs"})
	assert.Equal(t, got.npm, system+"/npm")

	assert.NilError(t, os.Remove(local+"/python3"))
	put(0o755, system+"/node")
	got = findPrograms(dirs)
	assert.DeepEqual(t, got.interpreters, map[string]string{Python: system + "/python3", JavaScript: system + "/node"})
	assert.Assert(t, is.Len(findPrograms([]string{t.TempDir()}).interpreters, 0))
}

func TestAWarmLanguageThatIsMissingIsSaid(t *testing.T) {
	given := map[string]string{Bash: "/bin/bash"}
	got, err := programsFor(&guestv1.PrepareRequest{Interpreters: given, Warm: []string{Bash}})
	assert.NilError(t, err)
	assert.DeepEqual(t, got.interpreters, given)
	for _, find := range []bool{false, true} {
		_, err = programsFor(&guestv1.PrepareRequest{Interpreters: given, FindInterpreters: find, Warm: []string{"cobol"}})
		assert.Check(t, is.ErrorContains(err, `there is no interpreter for "cobol" in the image`))
	}
}

func TestDirectoriesOfAPodGetTheirModes(t *testing.T) {
	dir := func(mode os.FileMode) string {
		d := t.TempDir()
		assert.NilError(t, os.Chmod(d, mode))
		return d
	}
	mode := func(d string) os.FileMode {
		info, err := os.Stat(d)
		assert.NilError(t, err)
		return info.Mode() &^ os.ModeDir
	}
	for given, want := range map[os.FileMode]os.FileMode{
		0o777: 0o755, 0o775 | os.ModeSetgid: 0o755, 0o777 | os.ModeSticky: 0o755, 0o755: 0o755, 0o700: 0o700,
	} {
		d := dir(given)
		assert.NilError(t, forbidOthers(d))
		assert.Check(t, is.Equal(mode(d), want), "of %v", given)
	}
	assert.NilError(t, forbidOthers(filepath.Join(t.TempDir(), "none")), "the guest makes it")
	for _, given := range []os.FileMode{0o777, 0o755, 0o777 | os.ModeSticky, 0o775 | os.ModeSetgid} {
		d := dir(given)
		assert.NilError(t, openToOthers(d))
		assert.Check(t, is.Equal(mode(d), 0o777|os.ModeSticky), "of %v", given)
	}
	assert.ErrorIs(t, openToOthers(filepath.Join(t.TempDir(), "none")), os.ErrNotExist)
}

func TestAGuestThatCannotListenSaysWhy(t *testing.T) {
	const key = "c60sJhEScBXhVjHD7H2IWpvmKkO37flYcqYJVe3gZOI"
	for name, c := range map[string]struct{ address, key, pod, want string }{
		"no key":      {":0", "", "uid", "the environment variable SANDBOX_GUEST_AUTHORITY is no public key"},
		"no address":  {"", key, "uid", "the environment variable SANDBOX_GUEST_LISTEN names no address"},
		"a wrong key": {":0", key + "A", "uid", "SANDBOX_GUEST_AUTHORITY is no public key"},
		"no pod":      {":0", key, "", "the environment variable SANDBOX_GUEST_POD does not have the UID"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			err := Listen(t.Context(), c.address, Trust{c.key, c.pod}, &log)
			assert.Check(t, is.ErrorContains(err, c.want))
			assert.Check(t, is.Equal(log.String(), ""))
		})
	}
}

func TestAnInstalledGuestIsAWholeProgram(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // also over an earlier one
		assert.NilError(t, install(dir))
	}
	names, err := os.ReadDir(dir)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(names, 1))
	info, err := os.Stat(filepath.Join(dir, "guest"))
	assert.NilError(t, err)
	assert.Equal(t, info.Mode(), os.FileMode(0o755))
	self, err := os.Stat("/proc/self/exe")
	assert.NilError(t, err)
	assert.Equal(t, info.Size(), self.Size())
	assert.ErrorIs(t, install(filepath.Join(dir, "none")), os.ErrNotExist)
}

// connected runs Connect to a listener. What is written to in comes out of the listener's
// connection, and the reverse.
func connected(t *testing.T) (in *io.PipeWriter, out *io.PipeReader, conn *net.TCPConn, ended <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	assert.NilError(t, err)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { done <- Connect(":"+port, inR, outW) })
	c, err := l.Accept()
	assert.NilError(t, err)
	t.Cleanup(func() {
		_, _, _ = inW.Close(), outR.Close(), c.Close()
		running.Wait()
	})
	return inW, outR, c.(*net.TCPConn), done
}

func TestConnectEndsEachDirectionByItself(t *testing.T) {
	t.Run("the caller first", func(t *testing.T) {
		in, out, conn, ended := connected(t)
		go func() {
			_, _ = io.WriteString(in, "question")
			_ = in.Close()
		}()
		got, err := io.ReadAll(conn)
		assert.NilError(t, err)
		assert.Equal(t, string(got), "question")
		_, err = io.WriteString(conn, "answer")
		assert.NilError(t, err)
		assert.NilError(t, conn.Close())
		got, err = io.ReadAll(out)
		assert.NilError(t, err)
		assert.Equal(t, string(got), "answer")
		assert.NilError(t, <-ended)
	})
	t.Run("the guest first", func(t *testing.T) {
		in, out, conn, ended := connected(t)
		_, err := io.WriteString(conn, "greeting")
		assert.NilError(t, err)
		assert.NilError(t, conn.CloseWrite())
		got, err := io.ReadAll(out)
		assert.NilError(t, err)
		assert.Equal(t, string(got), "greeting")
		go func() {
			_, _ = io.WriteString(in, "last word")
			_ = in.Close()
		}()
		got, err = io.ReadAll(conn)
		assert.NilError(t, err)
		assert.Equal(t, string(got), "last word")
		assert.NilError(t, <-ended)
	})
	t.Run("the reader goes away", func(t *testing.T) {
		_, out, conn, ended := connected(t)
		gone := errors.New("gone")
		assert.NilError(t, out.CloseWithError(gone))
		_, err := io.WriteString(conn, "to nobody")
		assert.NilError(t, err)
		assert.ErrorIs(t, <-ended, gone)
	})
}

func TestConnectSaysThatNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	assert.NilError(t, err)
	assert.NilError(t, l.Close())
	in, _ := io.Pipe()
	_, out := io.Pipe()
	assert.ErrorContains(t, Connect(":"+port, in, out), "connect to the guest")
	assert.ErrorContains(t, Connect("nonsense", in, out), "SANDBOX_GUEST_LISTEN")
}
