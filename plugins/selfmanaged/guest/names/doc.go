// Package names lets programs that know of no proxy find hosts by their names: a resolver on
// the loopback address of the sandbox gives each name that may be allowed an address of
// loopback, and a connection to that address is one to the host.
//
// Nothing here decides anything, and no query leaves the sandbox. Code shares the network with
// the resolver, and can take its port or that of a name: it keeps the names from itself alone.
package names
