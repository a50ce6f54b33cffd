// Command sandbox-broker is the broker's daemon and its command line. main.go
// lists the commands; each stands in a file of its own. skeleton has what `plugin
// new` writes.
//
// Exit codes that all commands share: 0 for success, 1 when something was
// refused or failed, 2 for a command line that makes no sense. exec has
// more, and passes on that of the code (exec.go).
package main
