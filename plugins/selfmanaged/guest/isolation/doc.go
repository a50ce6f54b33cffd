// Package isolation starts programs of user code in the sandbox, each with all
// its descendants alone in a namespace.
//
// A program runs as an unprivileged user below an init process in PID, mount and
// IPC namespaces of its own, so it can neither see nor reach the guest or other
// programs, and killing its init kills everything that it ever started. The init
// process is the guest's own executable: its main function gives Init a chance
// first.
//
// What a program is fed and what becomes of its output is the caller's matter.
package isolation
