package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/handshake"
)

const (
	// closeTimeout bounds the provider's Close when it is stopped in order.
	closeTimeout = 3 * time.Second
	// exitGrace is how long a plugin may take to end after the end of its
	// standard input.
	exitGrace = 5 * time.Second
)

// Process is one running plugin.
type Process struct {
	label    string
	runner   *processRunner
	client   *plugin.Client
	conn     *grpc.ClientConn
	provider *wire.Client
	// What the plugin prints once it serves travels over gRPC.
	stdout, stderr *lines

	configured atomic.Bool
	worked     atomic.Bool // it has made an instance or executed something
	stopping   atomic.Bool
	started    chan struct{} // closed when start has returned
	done       chan struct{}

	mu         sync.Mutex
	conns      []*grpc.ClientConn
	programSum string // once somebody asked for it
}

func newProcess(label string, runner *processRunner) *Process {
	return &Process{
		label: label, runner: runner,
		stdout: runner.log.stream("stdout"), stderr: runner.log.stream("stderr"),
		started: make(chan struct{}), done: make(chan struct{}),
	}
}

// ExitError says how a plugin ended that nobody had asked to. It is for the
// log; what the plugin wrote to its standard error may hold anything.
type ExitError struct {
	Label string
	// Status in words: "exited with status 1", "was killed by signal SIGKILL".
	Status string
	// Stderr is the end of what the plugin wrote there, at most 64 KiB.
	Stderr string
}

// Error returns all but Stderr.
func (e *ExitError) Error() string {
	return fmt.Sprintf("provider %q: the plugin %s", e.Label, e.Status)
}

// Provider returns the plugin as a provider. Its errors name the provider, and
// its calls end with CodeUnavailable as soon as the process does.
func (p *Process) Provider() sdk.Provider { return &boundProvider{Client: p.provider, process: p} }

// Validate asks the plugin what is wrong with settings that obey its schema. Nothing
// of a plugin that does not look.
func (p *Process) Validate(ctx context.Context, settings sdk.Settings) ([]sdk.FieldError, error) {
	return (&boundProvider{Client: p.provider, process: p}).Validate(ctx, settings)
}

// fingerprint is that of the file that it was started from.
func (p *Process) fingerprint() string { return p.runner.exe.version }

// Conn is the connection to the plugin, for whoever looks at it as it is: nothing
// is bound to the life of the process there, and no secret taken out.
func (p *Process) Conn() grpc.ClientConnInterface { return p.conn }

// Kill ends the process with SIGKILL, as somebody else might, and returns when
// nothing of it is left.
func (p *Process) Kill() {
	p.runner.kill()
	<-p.done
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.runner.processID() }

// Done is closed when the process has ended and nothing of it is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns nil while the process runs and after Stop, and an *ExitError when
// it ended by itself.
func (p *Process) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	if p.stopping.Load() {
		return nil
	}
	return &ExitError{Label: p.label, Status: p.runner.status, Stderr: p.runner.lastStderr()}
}

// Stop ends the process: the provider's Close, then the end of its standard
// input, then SIGKILL for it and all that it has started. The end of ctx cuts the
// first two short. It returns when nothing of the process is left.
func (p *Process) Stop(ctx context.Context) {
	p.stopping.Store(true)
	if p.configured.Load() && p.alive() {
		closing, cancel := context.WithTimeout(ctx, closeTimeout)
		_ = p.provider.Close(closing) // a plugin may lack it or hang: it ends below in any case
		cancel()
	}
	p.runner.lifeline.Close()
	grace := time.NewTimer(exitGrace)
	defer grace.Stop()
	select {
	case <-p.runner.dead:
	case <-ctx.Done():
	case <-grace.C:
	}
	p.runner.kill()
	<-p.done
}

// diesWithin waits that long for the death of a process that seems to be dying.
func (p *Process) diesWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.runner.ended():
		<-p.runner.dead // is told in a moment
		return true
	case <-timer.C:
		return false
	}
}

func (p *Process) alive() bool {
	select {
	case <-p.runner.dead:
		return false
	default:
		return true
	}
}

// start does what go-plugin does at a start, and has the plugin describe
// itself. However it returns, the process is left to finish.
func (p *Process) start(ctx context.Context, config *plugin.ClientConfig) error {
	defer close(p.started)
	p.client = plugin.NewClient(config)
	_, err := p.client.Start()
	if p.PID() == 0 {
		p.runner.neverStarted()
	}
	go p.finish()
	if err != nil {
		return err
	}
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(handshake.Key)
	if err != nil {
		return err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return errors.New("go-plugin dispensed something else than a connection")
	}
	p.conn = conn
	p.provider, err = wire.NewClient(ctx, conn)
	return err
}

// finish waits for the end of the process and cleans up behind it.
func (p *Process) finish() {
	defer close(p.done)
	<-p.runner.dead
	// A process that this one started may hold the socket: closing our end is
	// what ends the calls.
	p.closeConns()
	<-p.started
	p.client.Kill() // waits for go-plugin's goroutines; the process is dead already
	p.closeConns()
	p.stdout.flush()
	p.stderr.flush()
	_ = os.RemoveAll(p.runner.socketDir)
	<-p.runner.drained
}

// brokerMethod is go-plugin's stream about further connections. Nothing of ours
// needs any, and each message on it costs the reader a goroutine for five seconds
// or an entry in a map for ever.
const brokerMethod = "/plugin.GRPCBroker/StartStream"

// openStream opens every stream to the plugin. It keeps go-plugin's connections,
// since its Client leaks one when the plugin dies during the first call, and keeps
// go-plugin from opening more than we need.
func (p *Process) openStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p.mu.Lock()
	if !slices.Contains(p.conns, cc) {
		p.conns = append(p.conns, cc)
	}
	p.mu.Unlock()
	if method == brokerMethod {
		return nil, status.Error(codes.Unimplemented, "the broker opens no further connections")
	}
	return streamer(ctx, desc, cc, method, opts...)
}

func (p *Process) closeConns() {
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, cc := range conns {
		_ = cc.Close() // a second close is an error and does nothing
	}
}

// launchError picks the most telling of the reasons that are known after a
// failed start. The process has ended by now.
func (p *Process) launchError(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	refusal := p.runner.handshakeRefusal()
	reason := &LaunchError{}
	switch {
	case cause != nil && !errors.As(cause, &reason):
		return cause // the caller gave up
	case cause != nil: // reason is set
	case p.PID() == 0:
		reason = notStarted("the plugin cannot be executed", err.Error())
	case refusal == errSilentEnd:
		reason = notStarted(fmt.Sprintf("the plugin %s before its handshake", p.runner.status))
	case refusal != nil:
		reason = refusal
	default:
		e, coded := errors.AsType[*sdk.Error](err)
		if coded && !errors.Is(err, wire.ErrPluginGone) {
			reason = notStarted("the plugin could not describe itself: " + e.Message)
			break
		}
		// Which error a death makes depends on what was under way.
		reason = notStarted(fmt.Sprintf("the plugin %s before it had described itself", p.runner.status), err.Error())
	}
	return &LaunchError{Public: reason.Public, Detail: reason.Detail, Stderr: p.runner.lastStderr()}
}
