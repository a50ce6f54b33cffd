// Command sandbox-broker is the broker's daemon and its command line. main.go
// lists the commands. Those that ask a running broker are in internal/remote; each of the
// others stands in a file of its own here. skeleton has what `plugin new` writes.
//
// Exit codes that all commands share: 0 for success, 1 when something failed, 2 for a
// command line that makes no sense. Commands that ask a broker have 3 where it refuses or
// is not there, and run, exec and shell pass on that of the program
// (internal/remote/failure.go).
package main
