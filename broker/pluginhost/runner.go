package pluginhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// errSilentEnd stands for a plugin that ended its standard output, by ending
// itself most likely, without a word.
var errSilentEnd = notStarted("the plugin ended before its handshake")

// pipeGrace is how long a dead plugin's output is still read, where a process
// that it started keeps the pipes open.
const pipeGrace = 200 * time.Millisecond

// processRunner owns one plugin process for go-plugin. go-plugin is shown the
// handshake line and an empty standard error, and nothing else: it waits for the
// end of both before it looks at the process, and a grandchild may hold them
// open for ever.
type processRunner struct {
	host  *watchdog.Host
	label string
	exe   *executable
	env   []string
	log   *pluginLog

	// Set by prepare and Start, before anybody else looks.
	socketDir string
	lifeline  *os.File // write end of the plugin's standard input
	handshake *io.PipeWriter
	greeting  *io.PipeReader
	tail      tail
	socket    string // set by PluginToHost

	mu       sync.Mutex
	process  *watchdog.Process // nil until started
	unwanted bool
	refusal  *LaunchError // why the handshake was not accepted

	dead    chan struct{} // closed as soon as the process is
	status  string        // how it ended, once dead is closed
	drained chan struct{} // closed when its output has been read and nothing of it is left
}

var _ runner.Runner = (*processRunner)(nil)

func newRunner(host *watchdog.Host, label string, exe *executable, env []string, logger hclog.Logger) *processRunner {
	r := &processRunner{host: host, label: label, exe: exe, env: env, dead: make(chan struct{}), drained: make(chan struct{})}
	r.log = newPluginLog(logger, r.dead)
	r.greeting, r.handshake = io.Pipe()
	return r
}

// prepare is go-plugin's RunnerFunc: cmd carries the variables that its side of
// the handshake needs.
func (r *processRunner) prepare(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (runner.Runner, error) {
	r.socketDir = socketDir
	// The last of two equal names wins, so go-plugin's own come last.
	r.env = append(r.env, cmd.Env...)
	return r, nil
}

// Start implements runner.Runner.
func (r *processRunner) Start(context.Context) error {
	// os.Pipe marks its ends close-on-exec, so that no other child of ours
	// keeps the lifeline or the outputs of this one.
	stdin, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	stdout, stdoutEnd, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdin.Close(), lifeline.Close())
	}
	stderr, stderrEnd, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdin.Close(), lifeline.Close(), stdout.Close(), stdoutEnd.Close())
	}
	err = r.startUnlessKilled(stdin, stdoutEnd, stderrEnd)
	_, _, _ = stdin.Close(), stdoutEnd.Close(), stderrEnd.Close()
	if err != nil {
		return errors.Join(err, lifeline.Close(), stdout.Close(), stderr.Close())
	}
	r.lifeline = lifeline

	var readers sync.WaitGroup
	readers.Go(func() { r.readStdout(stdout) })
	readers.Go(func() {
		out := r.log.stream("stderr")
		_, _ = io.Copy(io.MultiWriter(&r.tail, out), stderr)
		out.flush()
	})
	go r.watch(&readers, stdout, stderr)
	return nil
}

func (r *processRunner) startUnlessKilled(stdin, stdout, stderr *os.File) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unwanted {
		return errors.New("stopped before it started")
	}
	path, file, err := r.exe.runPath(r.socketDir)
	if err != nil {
		return err
	}
	r.process, err = r.host.Start(watchdog.Program{
		Label: r.label, Path: path, Name: r.exe.path, File: file, Env: r.env,
		Stdin: stdin, Stdout: stdout, Stderr: stderr,
	})
	return err
}

// watch waits for the process and cleans up behind it.
func (r *processRunner) watch(readers *sync.WaitGroup, stdout, stderr *os.File) {
	defer close(r.drained)
	<-r.process.Died()
	r.status = r.process.Status()
	r.lifeline.Close()
	close(r.dead)

	deadline := time.Now().Add(pipeGrace)
	_ = stdout.SetReadDeadline(deadline)
	_ = stderr.SetReadDeadline(deadline)
	readers.Wait()
	_, _ = stdout.Close(), stderr.Close()
	r.log.finish()
	<-r.process.Gone()
}

// readStdout passes the handshake line on to go-plugin. What comes after it is
// not the plugin's own output, which travels over gRPC, but that of its
// children or of another language's runtime: it is logged.
func (r *processRunner) readStdout(stdout io.Reader) {
	reader := bufio.NewReaderSize(stdout, maxHandshakeLine)
	line, err := reader.ReadSlice('\n')
	var refusal *LaunchError
	var greeting string
	switch {
	case err == nil:
		greeting, refusal = readHandshake(string(line))
	case len(line) == 0:
		refusal = errSilentEnd
	default:
		refusal = notStarted("the plugin printed something else before its handshake; nothing may go to its standard output before it serves",
			fmt.Sprintf("%.200q", line))
	}
	if refusal != nil {
		r.mu.Lock()
		r.refusal = refusal
		r.mu.Unlock()
	} else {
		_, _ = io.WriteString(r.handshake, greeting)
	}
	r.handshake.Close()

	out := r.log.stream("stdout")
	if refusal != nil {
		_, _ = out.Write(line)
	}
	_, _ = io.Copy(out, reader)
	out.flush()
}

// kill ends the process and all that it has started; it does nothing to a dead one.
func (r *processRunner) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unwanted = true
	if r.process != nil {
		r.process.Kill()
	}
}

// ended is closed as soon as the process is no more, and dead follows.
func (r *processRunner) ended() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return r.dead
	}
	return r.process.Ended()
}

// dial connects to the socket that the plugin named.
func (r *processRunner) dial(ctx context.Context, _ string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", r.socket)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		conn.Close()
		return nil, r.refuse(notStarted("the plugin's socket belongs to somebody else", err.Error()))
	}
	return conn, nil
}

// PluginToHost implements runner.Runner: a plugin may name its own socket
// directory only.
func (r *processRunner) PluginToHost(network, address string) (string, string, error) {
	below, err := filepath.Rel(r.socketDir, filepath.Clean(address))
	if network != "unix" || err != nil || !filepath.IsLocal(below) {
		return "", "", r.refuse(notStarted("the plugin named a socket outside the directory that it was given", fmt.Sprintf("%.200q", address)))
	}
	info, err := os.Lstat(address)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return "", "", r.refuse(notStarted("the plugin named a socket that does not exist", fmt.Sprintf("%.200q", address)))
	}
	r.socket = address
	return network, address, nil
}

func (r *processRunner) refuse(e *LaunchError) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusal = e
	return e
}

func (r *processRunner) handshakeRefusal() *LaunchError {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refusal
}

// neverStarted ends what waits for a process that there will not be.
func (r *processRunner) neverStarted() {
	r.handshake.Close()
	close(r.dead)
	close(r.drained)
}

// lastStderr returns what the plugin said last.
func (r *processRunner) lastStderr() string {
	text, cut := r.tail.text()
	if cut {
		return validtext.Printable(r.log.redactor().Part(text))
	}
	return validtext.Printable(r.log.clean(text))
}

func (r *processRunner) processID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return 0
	}
	return r.process.PID
}

// HostToPlugin implements runner.Runner.
func (r *processRunner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// Wait implements runner.Runner.
func (r *processRunner) Wait(ctx context.Context) error {
	select {
	case <-r.dead:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill implements runner.Runner.
func (r *processRunner) Kill(context.Context) error {
	r.kill()
	return nil
}

// Stdout implements runner.Runner; it has the handshake line only.
func (r *processRunner) Stdout() io.ReadCloser { return r.greeting }

// Stderr implements runner.Runner; it is empty.
func (r *processRunner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (r *processRunner) Name() string { return r.exe.name }

// ID implements runner.Runner. It is never empty: go-plugin's Kill would then
// leave its own goroutines behind.
func (r *processRunner) ID() string { return r.exe.name }

// Diagnose implements runner.Runner.
func (r *processRunner) Diagnose(context.Context) string { return "" }
