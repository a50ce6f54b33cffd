package serve_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// asked is a provider that tells what it was asked for.
type asked struct {
	sdk.Provider
	health func(context.Context)
}

func (p asked) Health(ctx context.Context) (sdk.Health, error) {
	p.health(ctx)
	return sdk.Health{Healthy: true}, nil
}

// Execute writes to the logger of its stream.
func (p asked) Execute(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
	sdk.Logger(ctx).Info("execute")
	panic("on purpose")
}

func TestACallKnowsItsRequest(t *testing.T) {
	var log bytes.Buffer
	logger := hclog.New(&hclog.LoggerOptions{Output: &log, JSONFormat: true})
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(serve.ServerOptions(logger)...)
	t.Cleanup(server.Stop)
	var id string
	serve.RegisterServer(server, asked{health: func(ctx context.Context) {
		id = sdk.RequestID(ctx)
		sdk.Logger(ctx).Info("health")
	}}, logger)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///plugin", append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, conn.Close()) })
	client := providerv1.NewProviderServiceClient(conn)
	for name, c := range map[string]struct {
		sent []string
		want string
	}{
		"the ID of a request":           {[]string{"01J-request_7"}, "01J-request_7"},
		"none":                          {nil, ""},
		"two":                           {[]string{"a", "b"}, ""},
		"one that would forge an entry": {[]string{"a request_id=b"}, ""},
		"one that is too long":          {[]string{strings.Repeat("a", 65)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			log.Reset()
			ctx := t.Context()
			for _, text := range c.sent {
				ctx = metadata.AppendToOutgoingContext(ctx, wire.MetadataRequestID, text)
			}
			_, err := client.Health(ctx, &providerv1.HealthRequest{})
			assert.NilError(t, err)
			assert.Equal(t, id, c.want)
			if c.want == "" {
				assert.Assert(t, !strings.Contains(log.String(), "request_id"), log.String())
				return
			}
			assert.Assert(t, is.Contains(log.String(), `"request_id":"`+c.want+`"`))
		})
	}
	t.Run("of a stream, and of its panic", func(t *testing.T) {
		log.Reset()
		ctx := metadata.AppendToOutgoingContext(t.Context(), wire.MetadataRequestID, "stream-1")
		stream, err := client.Execute(ctx, &providerv1.ExecuteRequest{InstanceId: "i", OutputLimit: 1, Timeout: durationpb.New(1)})
		assert.NilError(t, err)
		_, err = stream.Recv()
		assert.Assert(t, err != nil && !errors.Is(err, io.EOF))
		assert.Equal(t, strings.Count(log.String(), `"request_id":"stream-1"`), 2, log.String())
	})
}

func TestOutsideOfACallThereIsNoRequest(t *testing.T) {
	assert.Equal(t, sdk.RequestID(t.Context()), "")
	sdk.Logger(t.Context()).Error("nobody reads this")
}
