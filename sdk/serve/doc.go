// Package serve runs a provider as a plugin: Serve is all that a plugin's main calls. It
// puts the provider behind go-plugin and gRPC, ends with the broker, counts output up to
// its limits, and gives each error a code.
//
// The contract that a provider implements is in package sdk; how its types cross the
// connection, and the broker's side, in package wire.
package serve
