// Package wire is the connection between broker and plugin: what both sides must agree
// on (protocol.go), how the types of package sdk cross it, in both directions side by
// side, and the broker's side: a gRPC client that is an sdk.Provider (Client), which
// believes nothing of what a plugin says.
//
// The plugin's side is package serve; the messages are in providerv1, generated from
// sdk/proto. Starting and watching plugin processes is the plugin host's work.
package wire
