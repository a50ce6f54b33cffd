// Package egress is the inner half of the way out of a sandbox that an installer
// of packages has: an HTTP proxy on the loopback address of the sandbox, and
// tunnels that lead each connection to the plugin. The plugin decides which there
// are, and makes them.
//
// The network of the sandbox is shared with user code, which finds the port: the
// proxy does nothing for those who do not know its password. The sandbox itself
// has no route to anywhere.
package egress
