package guest

import (
	"context"
	"net"
	"os"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The variables by which Kubernetes tells each container where the API server is. Programs of
// the sandbox do not get them.
const (
	apiServerHost = "KUBERNETES_SERVICE_HOST"
	apiServerPort = "KUBERNETES_SERVICE_PORT"
)

// ReachAPIServer implements guestv1.GuestServiceServer.
func (g *guest) ReachAPIServer(ctx context.Context, req *guestv1.ReachAPIServerRequest) (*guestv1.ReachAPIServerResponse, error) {
	host, port := os.Getenv(apiServerHost), os.Getenv(apiServerPort)
	if host == "" || port == "" {
		return nil, sdk.Errorf(sdk.CodeNotSupported, "the sandbox does not know of an API server")
	}
	told := &guestv1.ReachAPIServerResponse{Address: net.JoinHostPort(host, port)}
	dialer := net.Dialer{Timeout: req.GetTimeout().AsDuration()}
	if conn, err := dialer.DialContext(ctx, "tcp", told.GetAddress()); err == nil {
		told.Reached = true
		_ = conn.Close()
	}
	// A caller who left has not asked to the end.
	return told, ctx.Err()
}
