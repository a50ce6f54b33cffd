package wire

import (
	"context"
	"errors"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Plugins is the host's half of go-plugin's registration. What it dispenses is
// the connection; NewClient makes a provider of it under a deadline, which
// go-plugin's own call does not have.
func Plugins() map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{
		ProtocolVersion: {PluginKey: &hostPlugin{}},
	}
}

// DialOptions limit what messages from a plugin can cost.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxAnswer), // some calls have limits of their own
			grpc.MaxCallSendMsgSize(MaxMessageBytes),
			grpc.ForceCodecV2(newBoundedCodec()),
		),
		// gRPC's own limit is 16 MiB, and decodes the details in them to as much
		// as fits into 40 times that.
		grpc.WithMaxHeaderListSize(maxHeaders),
		// The same as the other side's; see package serve.
		grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(8 << 20),
		grpc.WithReadBufferSize(128 << 10), grpc.WithWriteBufferSize(128 << 10),
	}
}

type hostPlugin struct {
	plugin.NetRPCUnsupportedPlugin
}

var _ plugin.GRPCPlugin = (*hostPlugin)(nil)

func (*hostPlugin) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("the plugin's side is in package sdk")
}

func (*hostPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}
