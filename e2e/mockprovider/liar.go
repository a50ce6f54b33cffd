package main

import (
	"bytes"
	"context"
	"os"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/handshake"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// serveLies serves the provider with its Execute in our own hands: the SDK's
// server keeps an author from breaking the contract.
func serveLies() {
	go func() {
		waitForTheEnd()
		os.Exit(0)
	}()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  handshake.Config(),
		VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolVersion: {handshake.Key: &liarPlugin{}}},
		GRPCServer:       plugin.DefaultGRPCServer,
		Logger:           hclog.NewNullLogger(),
	})
}

type liarPlugin struct{ plugin.NetRPCUnsupportedPlugin }

var _ plugin.GRPCPlugin = (*liarPlugin)(nil)

func (*liarPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	serve.RegisterServer(liarRegistrar{s}, newProvider("liar")(hclog.NewNullLogger()), hclog.NewNullLogger())
	return nil
}

func (*liarPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// liarRegistrar puts a lying server around the SDK's.
type liarRegistrar struct{ grpc.ServiceRegistrar }

func (r liarRegistrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if desc == &providerv1.ProviderService_ServiceDesc {
		impl = &liarServer{impl.(providerv1.ProviderServiceServer)}
	}
	r.ServiceRegistrar.RegisterService(desc, impl)
}

type liarServer struct {
	providerv1.ProviderServiceServer
}

func (s *liarServer) Execute(req *providerv1.ExecuteRequest, stream grpc.ServerStreamingServer[providerv1.ExecuteResponse]) error {
	act, _, err := actionOf(sdk.Language(req.GetLanguage()), req.GetCode())
	if err != nil {
		return err
	}
	switch act.Lie {
	case "no_result":
		return nil
	case "too_much":
		for range req.GetOutputLimit()/1024 + 1 {
			if err := stream.Send(&providerv1.ExecuteResponse{
				Event: &providerv1.ExecuteResponse_Stdout{Stdout: bytes.Repeat([]byte("x"), 1024)},
			}); err != nil {
				return err
			}
		}
		return nil
	}
	return s.ProviderServiceServer.Execute(req, stream)
}
