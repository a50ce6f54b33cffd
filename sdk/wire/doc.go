// Package wire is the broker's side of the connection to a plugin: a gRPC
// client that is an sdk.Provider, and its go-plugin registration.
//
// The plugin's side is in sdk, behind sdk.Serve; the messages of both are in
// providerv1, generated from sdk/proto. Starting and watching plugin processes
// is the plugin host's work, not ours.
package wire
