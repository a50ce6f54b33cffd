package serve_test

import (
	"context"
	"net"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/serve"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// traced takes down which trace a call is a part of.
type traced struct {
	providerv1.UnimplementedProviderServiceServer
	parent string
}

func (p *traced) Health(ctx context.Context, _ *providerv1.HealthRequest) (*providerv1.HealthResponse, error) {
	p.parent = sdk.TraceParent(ctx)
	return &providerv1.HealthResponse{}, nil
}

func TestACallKnowsItsTrace(t *testing.T) {
	listener, p := bufconn.Listen(1<<16), &traced{parent: "not asked"}
	server := grpc.NewServer(serve.ServerOptions(hclog.NewNullLogger())...)
	providerv1.RegisterProviderServiceServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///plugin", append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, conn.Close())
		server.Stop()
		assert.Check(t, <-served)
	})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, c := range map[string]struct {
		sent []string
		want string
	}{
		"one":                     {[]string{parent}, parent},
		"none":                    {nil, ""},
		"two":                     {[]string{parent, parent}, ""},
		"one that is no trace":    {[]string{"00-x"}, ""},
		"one with more behind it": {[]string{parent + "-more"}, ""},
		"one of another version":  {[]string{"01" + parent[2:]}, ""},
		"one in capital letters":  {[]string{"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			for _, text := range c.sent {
				ctx = metadata.AppendToOutgoingContext(ctx, wire.MetadataTraceParent, text)
			}
			_, err := providerv1.NewProviderServiceClient(conn).Health(ctx, &providerv1.HealthRequest{})
			assert.NilError(t, err)
			assert.Equal(t, p.parent, c.want)
		})
	}
}
