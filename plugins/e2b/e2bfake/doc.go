// Package e2bfake is a cloud that speaks the protocol of E2B, on this machine: the
// control API, the proxy in front of sandboxes, and in each sandbox envd and the code
// interpreter (package agent). Code that is sent to it really runs, with the
// interpreters below /usr, in namespaces that bubblewrap makes: a sandbox has its own
// files, processes and loopback, and nothing of it is left when it ends.
//
// It is written from what was seen of the original, and keeps to it where that is
// inconvenient: it speaks TLS and HTTP/2, tells sandboxes apart by the names of hosts,
// knows exact paths and methods, resets connections at a pause, has kernels that get
// their environment unescaped and die in silence, and old versions of envd. On request it
// lies (Fault): it loses answers of calls that had an effect, cuts streams, refuses, is
// late.
//
// Requests must be what is published: members that are needed, types, ranges, forms, values
// of enumerations. Where the original is not known to mind, the fake does: at parameters and
// at members of messages to envd and the code interpreter that are not known. Those of the
// control API it ignores as the original does, and takes them down (Unread).
//
// A test binary that uses it calls Main first in its TestMain, for the sandboxes are
// started from the same executable.
package e2bfake
