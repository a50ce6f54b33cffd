// Package serve runs a provider as a plugin: Serve is all that a plugin's main calls. It
// puts the provider behind go-plugin and gRPC, ends with the broker, cuts output at
// its limits, so that no author has to count, and gives each error a code.
//
// The contract that a provider implements is in package sdk; how its types cross the
// connection, and the broker's side, in package wire.
package serve
