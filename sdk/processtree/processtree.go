package processtree

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/processtree/processtable"
)

// ErrKeeperKilled says that somebody has killed the keeper of a tree: how the program
// ended is not known, and something that it started may go on.
var ErrKeeperKilled = errors.New("the keeper of the process tree was killed")

// ErrEnded says that a tree has ended already.
var ErrEnded = errors.New("the process tree has ended")

// Program says what to run.
type Program struct {
	// Argv is the program, found along the PATH of this process, and its arguments.
	Argv []string
	// Env is the whole environment, as name=value.
	Env []string
	// Dir is where it starts; empty for /.
	Dir string
	// Stdin is closed by the caller; empty if nil.
	Stdin *os.File
	// Stdout and Stderr get what the whole tree prints, each from one goroutine. An
	// *os.File is given to the program itself. When one returns an error the tree is
	// killed, and the error is that of Wait. nil throws the output away.
	Stdout, Stderr io.Writer
	// ExtraFiles are descriptors 3 and following of the program.
	ExtraFiles []*os.File
}

// Exit is how a tree has ended.
type Exit struct {
	// Code is the exit code of the program; 128 plus the signal when one ended it.
	Code int
	// CPUTime is that of all processes of the tree.
	CPUTime time.Duration
}

// Tree is a program that runs, with all that it has started.
type Tree struct {
	keeper   *exec.Cmd
	orders   *os.File
	signals  sync.Mutex    // is held from an order until its answer
	answered chan struct{} // gets one for each order that was carried out
	done     chan struct{} // closed at the end
	outputs  []*os.File    // read ends
	pumps    sync.WaitGroup

	mu       sync.Mutex
	writeErr error
	exit     Exit  // once done is closed
	err      error // once done is closed
}

// Start returns when the program runs. Its error is one of exec.LookPath or of the
// system, such as fs.ErrNotExist for a Dir that is not there. Whoever has the tree waits
// for it, so that nothing of it is left.
func Start(p Program) (*Tree, error) {
	if len(p.Argv) == 0 {
		return nil, errors.New("no program is given")
	}
	path, err := exec.LookPath(p.Argv[0])
	if err != nil {
		return nil, err
	}
	order, err := json.Marshal(startOrder{Path: path, Argv: p.Argv, Env: p.Env, Dir: p.Dir, ExtraFiles: len(p.ExtraFiles)})
	if err != nil {
		return nil, err
	}
	t := &Tree{answered: make(chan struct{}), done: make(chan struct{})}
	var theirs []*os.File // which are the keeper's alone once it runs
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	t.orders, theirs = orders, append(theirs, theirOrders)
	reports, theirReports, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, orders.Close())
	}
	theirs = append(theirs, theirReports)

	t.keeper = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{keeperName}, Env: []string{}, Dir: "/",
		ExtraFiles: append([]*os.File{theirOrders, theirReports}, p.ExtraFiles...),
	}
	if p.Stdin != nil {
		t.keeper.Stdin = p.Stdin
	}
	for _, stream := range []struct {
		to   io.Writer
		give *io.Writer
	}{{p.Stdout, &t.keeper.Stdout}, {p.Stderr, &t.keeper.Stderr}} {
		switch to := stream.to.(type) {
		case nil:
		case *os.File:
			*stream.give = to
		default:
			reader, writer, pipeErr := os.Pipe()
			if pipeErr != nil {
				err = errors.Join(err, pipeErr)
				continue
			}
			*stream.give, theirs = writer, append(theirs, writer)
			t.outputs = append(t.outputs, reader)
			t.pumps.Go(func() { t.pump(to, reader) })
		}
	}
	if err == nil {
		err = t.keeper.Start()
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	theirs = nil
	if err != nil {
		t.pumps.Wait()
		return nil, errors.Join(err, orders.Close(), reports.Close())
	}
	lines := bufio.NewReader(reports)
	_, err = orders.Write(append(order, '\n'))
	var first string
	if err == nil {
		first, err = lines.ReadString('\n')
	}
	if err == nil && first != reportStarted {
		err = startError(first)
	}
	if err != nil {
		_ = t.keeper.Process.Kill()
		_ = t.keeper.Wait()
		t.pumps.Wait()
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.Argv[0], err), orders.Close(), reports.Close())
	}
	go t.follow(reports, lines)
	return t, nil
}

// pump passes output on until its end.
func (t *Tree) pump(to io.Writer, from *os.File) {
	defer from.Close()
	_, err := io.Copy(to, struct{ io.Reader }{from})
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	t.mu.Lock()
	if t.writeErr == nil {
		t.writeErr = err
	}
	t.mu.Unlock()
	t.Kill()
}

// follow reads the keeper's reports until its end.
func (t *Tree) follow(reports *os.File, lines *bufio.Reader) {
	var exit Exit
	err := ErrKeeperKilled
	for {
		line, readErr := lines.ReadString('\n')
		if readErr != nil {
			break
		}
		var status uint32
		var cpu time.Duration
		if n, _ := fmt.Sscanf(line, reportExit, &status, &cpu); n == 2 {
			exit, err = Exit{Code: exitCode(syscall.WaitStatus(status)), CPUTime: cpu}, nil
			continue
		}
		t.answered <- struct{}{}
	}
	_ = t.keeper.Wait()
	if err != nil {
		for _, output := range t.outputs {
			_ = output.SetReadDeadline(time.Now()) // somebody may hold the other end for good
		}
	}
	t.pumps.Wait()
	_ = reports.Close()
	_ = t.orders.Close()
	t.mu.Lock()
	t.exit, t.err = exit, err
	if t.writeErr != nil {
		t.err = t.writeErr
	}
	t.mu.Unlock()
	close(t.done)
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// Done is closed when nothing of the tree is left and its output has been passed on.
func (t *Tree) Done() <-chan struct{} { return t.done }

// Wait waits for Done. The error is that of Stdout or Stderr, or ErrKeeperKilled.
func (t *Tree) Wait() (Exit, error) {
	<-t.done
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exit, t.err
}

// Kill begins to end the whole tree; Done tells when it has ended. It can be called at
// any time, and again.
func (t *Tree) Kill() { _, _ = t.orders.Write([]byte{byte(syscall.SIGKILL)}) }

// Signal sends a signal to every process of the tree, and returns when that is done, or
// with ErrEnded. SIGKILL is what Kill does.
func (t *Tree) Signal(signal syscall.Signal) error {
	if signal == syscall.SIGKILL {
		select {
		case <-t.done:
			return ErrEnded
		default:
			t.Kill()
			return nil
		}
	}
	if signal <= 0 || signal > 64 {
		return fmt.Errorf("%d is no signal", int(signal))
	}
	t.signals.Lock()
	defer t.signals.Unlock()
	if _, err := t.orders.Write([]byte{byte(signal)}); err != nil {
		return ErrEnded
	}
	select {
	case <-t.answered:
		return nil
	case <-t.done:
		return ErrEnded
	}
}

// Processes counts those that live; none once the tree has ended.
func (t *Tree) Processes() (int, error) {
	select {
	case <-t.done: // the keeper's number may be another's
		return 0, nil
	default:
	}
	all, err := processtable.Read()
	if err != nil {
		return 0, err
	}
	living := 0
	for _, p := range processtable.Below(all, func(p processtable.Process) bool { return p.Parent == t.keeper.Process.Pid }) {
		if !p.Zombie {
			living++
		}
	}
	return living, nil
}

// startError is what the keeper says about a program that could not be started.
func startError(line string) error {
	var number int
	line = strings.TrimSuffix(line, "\n")
	if n, _ := fmt.Sscanf(line, reportErrno, &number); n == 1 {
		return syscall.Errno(number)
	}
	return errors.New(line)
}
