package guest

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/egress"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
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
		return sdk.Errorf(sdk.CodeUnavailable, "not prepared")
	case len(req.GetArgv()) == 0:
		return sdk.Errorf(sdk.CodeInvalidRequest, "there is nothing to run")
	}
	answer := &installStream{stream: stream}
	proxy, err := egress.StartProxy(func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		return in.tunnels.Dial(ctx, host, port, func(connect *guestv1.Connect) error {
			return answer.send(&guestv1.InstallResponse{Event: &guestv1.InstallResponse_Connect{Connect: connect}})
		})
	})
	if err != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	defer proxy.Close()

	p, err := startProcess(isolation.Spec{
		Argv: req.GetArgv(), Env: installerEnvironment(proxy.URL(), req.GetEnv()),
		// It reads nothing that user code has put in its way.
		Dir: TemporaryDir, PrivateTmp: true, Limits: limits,
	})
	if err != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	defer p.wait()
	defer p.Kill()
	if err := p.Started(stream.Context()); err != nil {
		return notStarted(err)
	}
	e := &execution{ctx: stream.Context(), process: p, report: newReport(answer, &providerv1.ExecuteRequest{OutputLimit: req.GetOutputLimit()})}
	guarded := guard.Watch(p)
	defer guarded.Release()

	started := time.Now()
	outcome, exit := e.run(nil, req.GetTimeout().AsDuration(), guarded)
	elapsed := time.Since(started)
	p.wait()
	proxy.Close() // nothing is sent after the result
	if err := stream.Context().Err(); err != nil {
		return err
	}
	return answer.send(&guestv1.InstallResponse{Event: &guestv1.InstallResponse_Result{Result: inWords(sdk.ExecuteResult{
		Status: outcome, ExitCode: exit.Code, Duration: elapsed, Truncated: e.report.truncated, PeakMemoryBytes: exit.PeakBytes,
	}, req.GetTimeout().AsDuration())}})
}

func (in *installations) Tunnel(stream grpc.BidiStreamingServer[guestv1.TunnelRequest, guestv1.TunnelResponse]) error {
	return in.tunnels.Serve(stream)
}

// notStarted says why an installer does not run.
func notStarted(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return sdk.Errorf(sdk.CodeUnavailable, "%w", err)
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
// execution, and the requests for connections from the proxy.
type installStream struct {
	mu     sync.Mutex // a gRPC stream takes one sender at a time
	stream grpc.ServerStreamingServer[guestv1.InstallResponse]
}

// Send implements eventSender.
func (s *installStream) Send(event *providerv1.ExecuteResponse) error {
	switch e := event.GetEvent().(type) {
	case *providerv1.ExecuteResponse_Stdout:
		return s.send(&guestv1.InstallResponse{Event: &guestv1.InstallResponse_Stdout{Stdout: e.Stdout}})
	case *providerv1.ExecuteResponse_Stderr:
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
