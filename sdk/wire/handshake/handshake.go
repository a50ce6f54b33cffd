// Package handshake is what broker and plugin agree on before they speak the contract:
// go-plugin's configuration and registration. How the types of the contract cross the
// connection is package wire's, which those can use who have a connection without
// go-plugin.
package handshake

import (
	"context"
	"errors"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// Key is the name under which go-plugin dispenses the provider.
const Key = "provider"

// Config is what go-plugin compares on both sides before anything else. The
// cookie tells a person who starts a plugin by hand what it is; it protects
// nothing.
func Config() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion:  wire.ProtocolVersion,
		MagicCookieKey:   "SANDBOX_BROKER_PLUGIN",
		MagicCookieValue: "sandboxbroker.provider.v1",
	}
}

// Plugins is the host's half of go-plugin's registration. What it dispenses is
// the connection; wire.NewClient makes a provider of it under a deadline, which
// go-plugin's own call does not have.
func Plugins() map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{
		wire.ProtocolVersion: {Key: &hostPlugin{}},
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
