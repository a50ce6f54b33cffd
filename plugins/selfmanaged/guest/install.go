package guest

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/egress"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
)

// installations serves the installers of packages. It holds nothing before its
// first use.
type installations struct {
	guestv1.UnimplementedInstallServiceServer

	guest   *guest
	tunnels egress.Tunnels
	asking  asking
}

var _ guestv1.InstallServiceServer = (*installations)(nil)

func (in *installations) Install(req *guestv1.InstallRequest, stream grpc.ServerStreamingServer[guestv1.InstallResponse]) error {
	limits, guard, ok := in.guest.resources()
	switch {
	case !ok:
		return status.Error(codes.FailedPrecondition, "not prepared")
	case len(req.GetArgv()) == 0:
		return status.Error(codes.InvalidArgument, "there is nothing to run")
	}
	answer := &installStream{stream: stream}
	proxy, err := egress.StartProxy(func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		return in.tunnels.Dial(ctx, host, port, func(connect *guestv1.Connect) error {
			return answer.send(&guestv1.InstallResponse{Event: &guestv1.InstallResponse_Connect{Connect: connect}})
		})
	})
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	defer proxy.Close()

	p, err := startProcess(isolation.Spec{
		Argv: req.GetArgv(), Env: installerEnvironment(proxy.URL(), req.GetEnv()),
		// It reads nothing that user code has put in its way.
		Dir: TemporaryDir, PrivateTmp: true, Limits: limits,
	})
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	defer p.wait()
	defer p.Kill()
	if err := p.Started(stream.Context()); err != nil {
		return notStarted(err)
	}
	e := &execution{ctx: stream.Context(), process: p, report: newReport(answer, &guestv1.ExecuteRequest{OutputLimit: req.GetOutputLimit()})}
	guarded := guard.Watch(p)
	defer guarded.Release()

	started := time.Now()
	outcome, exit := e.run(nil, req.GetTimeout().AsDuration(), guarded)
	elapsed := time.Since(started)
	p.wait()
	proxy.Close() // nothing is sent after the result
	if err := stream.Context().Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return answer.send(&guestv1.InstallResponse{Event: &guestv1.InstallResponse_Result{Result: &guestv1.ExecuteResult{
		Outcome: outcome, ExitCode: int32(exit.Code), Duration: durationpb.New(elapsed),
		Truncated: e.report.truncated, PeakMemoryBytes: exit.PeakBytes,
	}}})
}

func (in *installations) Tunnel(stream grpc.BidiStreamingServer[guestv1.TunnelRequest, guestv1.TunnelResponse]) error {
	return in.tunnels.Serve(stream)
}

// notStarted says why an installer does not run.
func notStarted(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

// installerEnvironment is what an installer starts with. Its home is where user
// code has left nothing for it to read.
func installerEnvironment(proxy string, env map[string]string) []string {
	all := map[string]string{"HOME": TemporaryDir, "NO_PROXY": "", "no_proxy": ""}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		all[name] = proxy
	}
	maps.Copy(all, env)
	return isolation.Environment(all)
}

// errNoSuchEvent is what an installer cannot say.
var errNoSuchEvent = errors.New("an installation has no such event")

// installStream is the answer of an installation. Its output comes from an
// execution, and the wishes for connections from the proxy.
type installStream struct {
	mu     sync.Mutex // a gRPC stream takes one sender at a time
	stream grpc.ServerStreamingServer[guestv1.InstallResponse]
}

// Send implements eventSender.
func (s *installStream) Send(event *guestv1.ExecuteResponse) error {
	switch e := event.GetEvent().(type) {
	case *guestv1.ExecuteResponse_Stdout:
		return s.send(&guestv1.InstallResponse{Event: &guestv1.InstallResponse_Stdout{Stdout: e.Stdout}})
	case *guestv1.ExecuteResponse_Stderr:
		return s.send(&guestv1.InstallResponse{Event: &guestv1.InstallResponse_Stderr{Stderr: e.Stderr}})
	default:
		return errNoSuchEvent
	}
}

func (s *installStream) send(event *guestv1.InstallResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.Send(event)
}
