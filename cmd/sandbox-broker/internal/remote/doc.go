// Package remote has the commands that ask a running broker, over its API and by the
// client that everybody has (sdk/client). Each command is a struct for kong with a Run
// method; Commands has all of them.
//
// Not here: commands that work on files of this machine, and the daemon.
package remote
