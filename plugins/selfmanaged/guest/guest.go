package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/commands"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/files"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/ports"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/serve/services"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// MaxMessageBytes bounds a message of the protocol.
const MaxMessageBytes = 32 << 20

// TemporaryDir is where user code can write beside isolation.WorkspaceDir, inside
// the sandbox.
const TemporaryDir = "/tmp"

// RunDir, inside the sandbox, holds the runners; only the guest may write there.
const RunDir = "/run/sandbox"

// Languages, by the names that the protocol has for them.
const (
	Python     = string(sdk.Python)
	JavaScript = string(sdk.JavaScript)
	Bash       = string(sdk.Bash)
)

// Run serves the protocol until in ends. It leaves behind what it started: its
// caller is process 1, whose end is the end of everything in the sandbox.
func Run(in io.ReadCloser, out io.WriteCloser) error { return run(in, out, false) }

// run is Run. With builds the guest's commands are root's.
func run(in io.ReadCloser, out io.WriteCloser, builds bool) error {
	// A guest is many; each keeps its heap small.
	debug.SetGCPercent(50)
	if err := writeRunners(); err != nil {
		return err
	}
	names, err := nameWorkspace()
	if err != nil {
		return err
	}
	g := newGuest(names)
	g.builds = builds
	if encoded := os.Getenv(PrepareVariable); encoded != "" {
		var err error
		if in, err = g.prepareAhead(encoded, in, out); err != nil || in == nil {
			return err
		}
	}
	g.line = stdio.NewLine(in, out)
	srv := g.server(append(g.asked.count(), grpc.ReadBufferSize(0))...) // the connection has one
	err = srv.Serve(g.line)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// newGuest makes a guest whose workspace has these further names.
func newGuest(names []string) *guest {
	g := &guest{names: names, running: newInterruptible()}
	g.contexts = newContexts(g)
	return g
}

// server makes a server of all that a guest does.
func (g *guest) server(options ...grpc.ServerOption) *grpc.Server {
	srv := grpc.NewServer(append(append(wire.EncodeErrors(),
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		// A window of less than a message, and each read or write of the pipes, costs
		// changes of threads and processes in gVisor.
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(4<<20),
		grpc.WriteBufferSize(128<<10),
		grpc.ForceServerCodecV2(answerCodec()),
	), options...)...)
	guestv1.RegisterGuestServiceServer(srv, g)
	providerv1.RegisterProviderServiceServer(srv, executions{guest: g})
	providerv1.RegisterContextServiceServer(srv, g.contexts)
	services.RegisterCommands(srv, commands.New(g.resources, g.builds))
	guestv1.RegisterInstallServiceServer(srv, &installations{guest: g})
	guestv1.RegisterNetworkServiceServer(srv, &network{})
	providerv1.RegisterMetricsServiceServer(srv, metrics{})
	files.Register(srv, files.Options{Roots: append([]string{isolation.WorkspaceDir, TemporaryDir}, g.names...), Room: g.room})
	services.RegisterPorts(srv, &ports.Ports{})
	return srv
}

// answerCodec encodes answers. Names and errors in them come from whatever runs in
// the sandbox.
func answerCodec() encoding.CodecV2 { return validtext.Codec(filechunk.Codec()) }

// guest implements the protocol.
type guest struct {
	guestv1.UnimplementedGuestServiceServer
	contexts *contexts
	names    []string // of the workspace, further ones
	outlives bool     // its connections, which are many
	builds   bool     // layers of images, as CommandBuild says
	attended attendance
	line     *stdio.Line // nil for one that listens
	asked    inProgress  // over the line

	mu sync.Mutex
	// request and found are what the guest was prepared for, and what it found then.
	request *guestv1.PrepareRequest
	found   programs
	ahead   bool // prepared before anybody connected
	runtime *interpreters
	memory  *memory.Guard
	policy  codepolicy.Policy

	note []byte // of the plugin's

	running *interruptible
}

func (g *guest) Prepare(ctx context.Context, req *guestv1.PrepareRequest) (*guestv1.PrepareResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ahead:
		// A copy has its memory in a file until it is touched: what forks an interpreter
		// now touches most of what an execution needs, before anybody waits for that.
		if err := g.runtime.refill(ctx); err != nil {
			return nil, sdk.Errorf(sdk.CodeUnavailable, "%w", err)
		}
		g.memory.Settle()
		g.ahead = false
	case g.runtime != nil && !g.outlives:
		return nil, sdk.Errorf(sdk.CodeUnavailable, "already prepared")
	case g.runtime != nil && !proto.Equal(req, g.request):
		return nil, sdk.Errorf(sdk.CodeConflict, "the sandbox was prepared already, and otherwise")
	case g.runtime != nil: // for who adopts the sandbox
	default:
		if g.outlives {
			// What was begun is of use to the next who connects, who waits for it.
			ctx = context.WithoutCancel(ctx)
		}
		if err := g.prepare(ctx, req); err != nil {
			return nil, err
		}
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return nil, sdk.Errorf(sdk.CodeInternal, "uname: %w", err)
	}
	return &guestv1.PrepareResponse{
		Version: Version(), Kernel: unix.ByteSliceToString(uts.Release[:]),
		Interpreters: g.found.interpreters, Npm: g.found.npm,
	}, nil
}

// prepare does what Prepare is asked for. The caller holds mu.
func (g *guest) prepare(ctx context.Context, req *guestv1.PrepareRequest) error {
	policy, err := preparePolicy(req.GetCodePolicy())
	if err != nil {
		return sdk.Errorf(sdk.CodeInternal, "%w", err)
	}
	found, err := programsFor(req)
	if err != nil {
		return sdk.Errorf(sdk.CodeInvalidConfig, "%w", err)
	}
	guard := memory.NewGuard(req.GetMemoryLimit())
	runtime := newInterpreters(req, found.interpreters, guard)
	if g.ahead {
		runtime.forks.want() // copies have the server, and fork the first interpreter too
	}
	if req.GetPackages() {
		if err := writePip(); err != nil {
			return sdk.Errorf(sdk.CodeUnavailable, "%w", err)
		}
	}
	if err := runtime.warmUp(ctx); err != nil {
		runtime.drain()
		return sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	guard.Settle()
	g.runtime, g.memory, g.policy = runtime, guard, policy
	g.request, g.found = req, found
	return nil
}

// resources are what programs may use, once the guest was prepared.
func (g *guest) resources() (isolation.Limits, *memory.Guard, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runtime == nil {
		return isolation.Limits{}, nil, false
	}
	return g.runtime.limits, g.memory, true
}

// executions serves the one call of the provider's own service that a guest has.
type executions struct {
	providerv1.UnimplementedProviderServiceServer
	*guest
}

// Execute streams output and ends with exactly one result. Cancelling the call kills the
// execution.
func (g executions) Execute(req *providerv1.ExecuteRequest, stream grpc.ServerStreamingServer[providerv1.ExecuteResponse]) error {
	if req.GetContextId() != "" {
		c, err := g.contexts.find(req.GetContextId())
		if err != nil {
			return err
		}
		return c.execute(stream.Context(), g.running, req, stream)
	}
	runtime, memory, policy := g.prepared()
	if runtime == nil {
		return sdk.Errorf(sdk.CodeUnavailable, "not prepared")
	}
	return execute(stream.Context(), runtime, memory, policy, g.running, req, stream)
}

// Check answers that the guest is well.
func (g *guest) Check(context.Context, *guestv1.CheckRequest) (*guestv1.CheckResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runtime == nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "not prepared")
	}
	return &guestv1.CheckResponse{}, nil
}

// Remember implements guestv1.GuestServiceServer.
func (g *guest) Remember(_ context.Context, req *guestv1.RememberRequest) (*guestv1.RememberResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note = req.GetNote()
	if until := req.GetUntil(); until != nil {
		g.attended.keepUntil(until.AsTime())
	} else {
		g.attended.keepForever()
	}
	return &guestv1.RememberResponse{}, nil
}

// Recall implements guestv1.GuestServiceServer.
func (g *guest) Recall(context.Context, *guestv1.RecallRequest) (*guestv1.RecallResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &guestv1.RecallResponse{Note: g.note, Interpreters: g.found.interpreters, Npm: g.found.npm}, nil
}

// room says when the sandbox uses all of its memory, which files take as well.
func (g *guest) room() error {
	g.mu.Lock()
	memory := g.memory
	g.mu.Unlock()
	if memory == nil {
		return nil
	}
	return memory.Room()
}

// prepared returns what executions need; the interpreters are nil before Prepare.
func (g *guest) prepared() (*interpreters, *memory.Guard, codepolicy.Policy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.runtime, g.memory, g.policy
}

// Version identifies the protocol, so that a plugin notices a guest that speaks
// another: it is a digest of all calls and of all fields of all messages. The build's own version
// would not do, for it depends on how each of the two was built.
func Version() string {
	digest := sha256.New()
	for _, file := range []protoreflect.FileDescriptor{
		guestv1.File_sandboxbroker_guest_v1_guest_proto,
		guestv1.File_sandboxbroker_guest_v1_network_proto,
		guestv1.File_sandboxbroker_guest_v1_packages_proto,
		providerv1.File_sandboxbroker_provider_v1_provider_proto,
		providerv1.File_sandboxbroker_provider_v1_commands_proto,
		providerv1.File_sandboxbroker_provider_v1_lifecycle_proto,
		providerv1.File_sandboxbroker_provider_v1_files_proto,
		providerv1.File_sandboxbroker_provider_v1_contexts_proto,
		providerv1.File_sandboxbroker_provider_v1_ports_proto,
	} {
		services, messages := file.Services(), file.Messages()
		for i := range services.Len() {
			calls := services.Get(i).Methods()
			for j := range calls.Len() {
				_, _ = fmt.Fprintln(digest, calls.Get(j).FullName())
			}
		}
		for i := range messages.Len() {
			fields := messages.Get(i).Fields()
			for j := range fields.Len() {
				f := fields.Get(j)
				_, _ = fmt.Fprintln(digest, f.FullName(), f.Number(), f.Kind(), f.Cardinality())
			}
		}
	}
	return hex.EncodeToString(digest.Sum(nil)[:8])
}
