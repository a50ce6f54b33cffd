package processtree_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk/processtree"
)

// doomedVariable makes this executable a plugin that is killed while its tree runs.
const doomedVariable = "PROCESSTREE_DOOMED"

func TestMain(m *testing.M) {
	if os.Getenv(doomedVariable) != "" {
		tree, err := processtree.Start(shell(stray+"; wait", os.Stdout))
		if err == nil {
			_, err = tree.Wait()
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// stray is a script that starts something in a session of its own, with no environment
// and no parent, and prints its number.
const stray = `(env -i /usr/bin/setsid /bin/sleep 1000 & echo $!) `

func shell(script string, out io.Writer) processtree.Program {
	return processtree.Program{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}, Stdout: out}
}

// lines passes on the lines that a tree prints.
func lines(t *testing.T) (io.Writer, func() string) {
	t.Helper()
	reader, writer := io.Pipe()
	all := make(chan string, 100)
	var rest string
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1024)
		for {
			n, err := reader.Read(buf)
			rest += string(buf[:n])
			for {
				line, after, found := strings.Cut(rest, "\n")
				if !found {
					break
				}
				all <- line
				rest = after
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = writer.Close()
		<-done
	})
	return writer, func() string {
		select {
		case line := <-all:
			return line
		case <-time.After(2 * time.Minute):
			t.Fatal("it printed nothing")
			return ""
		}
	}
}

func start(t *testing.T, p processtree.Program) *processtree.Tree {
	t.Helper()
	tree, err := processtree.Start(p)
	assert.NilError(t, err)
	t.Cleanup(func() {
		tree.Kill()
		<-tree.Done()
	})
	return tree
}

func number(t *testing.T, text string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	assert.NilError(t, err)
	return pid
}

func isGone(t *testing.T, pid int) {
	t.Helper()
	assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestATreeEndsWithItsProgram(t *testing.T) {
	var out bytes.Buffer
	exit, err := start(t, shell(stray+"; exit 7", &out)).Wait()
	assert.NilError(t, err)
	assert.Equal(t, exit.Code, 7)
	isGone(t, number(t, out.String()))
}

func TestKillEndsWhatHasLeftItsParentSessionAndEnvironment(t *testing.T) {
	out, line := lines(t)
	tree := start(t, shell(stray+"; wait; sleep 1000", out))
	pid := number(t, line())
	assert.NilError(t, syscall.Kill(pid, 0))
	count, err := tree.Processes()
	assert.NilError(t, err)
	assert.Assert(t, count >= 2, "%d", count)
	tree.Kill()
	exit, err := tree.Wait()
	assert.NilError(t, err)
	assert.Equal(t, exit.Code, 128+9)
	isGone(t, pid)
	count, err = tree.Processes()
	assert.NilError(t, err)
	assert.Equal(t, count, 0)
	assert.ErrorIs(t, tree.Signal(syscall.SIGTERM), processtree.ErrEnded)
	assert.ErrorIs(t, tree.Signal(syscall.SIGKILL), processtree.ErrEnded)
}

// It forks for as long as it lives, each time into a new session.
func TestATreeThatForksAllTheTimeIsEnded(t *testing.T) {
	out, line := lines(t)
	tree := start(t, shell(`loop() { while true; do setsid sh -c 'sleep 1000' & sleep 0.01; done; }; loop & loop & echo ready; wait`, out))
	assert.Equal(t, line(), "ready")
	tree.Kill()
	exit, err := tree.Wait()
	assert.NilError(t, err)
	assert.Equal(t, exit.Code, 128+9)
}

func TestASignalReachesEveryProcess(t *testing.T) {
	out, line := lines(t)
	tree := start(t, shell(`(trap 'echo child; exit' USR1; echo ready; while true; do sleep 0.01; done) & trap 'echo parent; wait; exit 3' USR1; echo ready; while true; do sleep 0.01; done`, out))
	assert.Equal(t, line()+line(), "readyready")
	assert.NilError(t, tree.Signal(syscall.SIGUSR1))
	said := []string{line(), line()}
	assert.Check(t, is.Contains(said, "child"))
	assert.Check(t, is.Contains(said, "parent"))
	exit, err := tree.Wait()
	assert.NilError(t, err)
	assert.Equal(t, exit.Code, 3)
}

func TestATreeThatIsStoppedGoesOnOrIsKilled(t *testing.T) {
	out, line := lines(t)
	tree := start(t, shell(`echo $$; exec sleep 1000`, out))
	pid := number(t, line())
	assert.NilError(t, tree.Signal(syscall.SIGSTOP))
	stopped := func(want bool) func(poll.LogT) poll.Result {
		return func(poll.LogT) poll.Result {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err == nil && strings.Contains(string(stat), ") T ") == want {
				return poll.Success()
			}
			return poll.Continue("%s %v", stat, err)
		}
	}
	poll.WaitOn(t, stopped(true), poll.WithTimeout(2*time.Minute))
	assert.NilError(t, tree.Signal(syscall.SIGCONT))
	poll.WaitOn(t, stopped(false), poll.WithTimeout(2*time.Minute))
	assert.NilError(t, tree.Signal(syscall.SIGSTOP))
	tree.Kill()
	_, err := tree.Wait()
	assert.NilError(t, err)
	isGone(t, pid)
}

func TestTheProgramHasWhatItWasGivenAndNothingElse(t *testing.T) {
	t.Setenv("OF_THE_PLUGIN", "secret")
	in, err := os.Open("/dev/null")
	assert.NilError(t, err)
	defer in.Close()
	extra, theirs, err := os.Pipe()
	assert.NilError(t, err)
	defer extra.Close()
	dir := t.TempDir()
	var out, errOut bytes.Buffer
	p := processtree.Program{
		Argv: []string{"sh", "-c", `pwd; env; echo extra >&3; ls /proc/self/fd >&2; cat`},
		Env:  []string{"A=b c\nd", "PATH=" + os.Getenv("PATH"), "GODEBUG=nonsense"}, Dir: dir,
		Stdin: in, Stdout: &out, Stderr: &errOut, ExtraFiles: []*os.File{theirs},
	}
	direct := exec.CommandContext(t.Context(), p.Argv[0], p.Argv[1:]...)
	direct.ExtraFiles = p.ExtraFiles
	var directErr bytes.Buffer
	direct.Stderr = &directErr
	assert.NilError(t, direct.Run())
	tree := start(t, p)
	assert.NilError(t, theirs.Close())
	exit, err := tree.Wait()
	assert.NilError(t, err)
	assert.Equal(t, exit.Code, 0)
	assert.Check(t, is.Contains(out.String(), dir+"\n"))
	assert.Check(t, is.Contains(out.String(), "A=b c\nd\n"))
	assert.Check(t, !strings.Contains(out.String(), "OF_THE_PLUGIN"), out.String())
	assert.Check(t, is.Equal(errOut.String(), directErr.String()), "the descriptors")
	text, err := io.ReadAll(extra)
	assert.NilError(t, err)
	assert.Equal(t, string(text), "extra\nextra\n")
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

func TestAWriterThatFailsEndsTheTree(t *testing.T) {
	broken := errors.New("the reader is gone")
	_, err := start(t, shell("while true; do echo x; done", failing{broken})).Wait()
	assert.ErrorIs(t, err, broken)
}

func TestWhatCannotBeStartedSaysWhy(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	assert.NilError(t, os.WriteFile(script, []byte("\x7fELF of nobody"), 0o700))
	for name, c := range map[string]struct {
		p    processtree.Program
		want error
	}{
		"no such program":   {processtree.Program{Argv: []string{"no-such-program-here"}}, exec.ErrNotFound},
		"no such directory": {processtree.Program{Argv: []string{"sh"}, Dir: "/no/such/directory"}, fs.ErrNotExist},
		"not a program":     {processtree.Program{Argv: []string{script}}, syscall.ENOEXEC},
		"too much":          {processtree.Program{Argv: []string{"sh", strings.Repeat("x", 4<<20)}}, syscall.E2BIG},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := processtree.Start(c.p)
			assert.ErrorIs(t, err, c.want)
		})
	}
	_, err := processtree.Start(processtree.Program{})
	assert.ErrorContains(t, err, "no program")
	_, err = processtree.Start(processtree.Program{Argv: []string{"sh", "a\x00b"}})
	assert.ErrorIs(t, err, syscall.EINVAL)
}

func TestAKilledKeeperIsToldAndTakesItsProgramWithIt(t *testing.T) {
	out, line := lines(t)
	tree := start(t, shell(`echo $PPID; echo $$; while true; do sleep 0.01; done`, out))
	keeper, program := number(t, line()), number(t, line())
	assert.NilError(t, syscall.Kill(keeper, syscall.SIGKILL))
	_, err := tree.Wait()
	assert.ErrorIs(t, err, processtree.ErrKeeperKilled)
	waitGone(t, program)
}

func waitGone(t *testing.T, pid int) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return poll.Success() // a zombie waits for whoever adopted it
		}
		return poll.Continue("%s", stat)
	}, poll.WithTimeout(2*time.Minute))
}

func TestATreeEndsWithItsPlugin(t *testing.T) {
	self, err := os.Executable()
	assert.NilError(t, err)
	plugin := exec.CommandContext(t.Context(), self)
	plugin.Env = append(os.Environ(), doomedVariable+"=1")
	out, line := lines(t)
	reader, writer, err := os.Pipe()
	assert.NilError(t, err)
	plugin.Stdout, plugin.Stderr = writer, os.Stderr
	assert.NilError(t, plugin.Start())
	assert.NilError(t, writer.Close())
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, reader)
		copied <- err
	}()
	pid := number(t, line())
	assert.NilError(t, plugin.Process.Kill())
	_ = plugin.Wait()
	waitGone(t, pid)
	assert.NilError(t, <-copied)
	assert.NilError(t, reader.Close())
}
