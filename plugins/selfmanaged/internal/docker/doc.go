// Package docker starts sandboxes as containers of a Docker Engine with the
// gVisor runtime: one container each, the guest as process 1, its standard input
// and output attached. It is the only package that knows the engine's client,
// which is frozen: a move to its successor stays inside.
//
// A container ends with its guest, and a guest with its input, so a container
// does not outlive the plugin: the engine closes its input when the connection
// of the plugin ends, and removes it. What a crash of the engine itself left is
// found by label at the next start.
//
// Pools, templates and what the guest is asked are the provider's matters.
package docker
