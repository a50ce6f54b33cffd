// Package egress is the outer half of the way out of a sandbox that an installer
// of packages has: it decides which hosts a connection may lead to, makes it, and
// says so in the log. The inner half is in package guest/egress.
//
// What comes from a sandbox is believed in nothing. A host is reached if its name
// is on the list and the address that it has at that moment is one of the open
// Internet, unless the operator named the host as an index.
package egress
