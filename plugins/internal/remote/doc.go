// Package remote is the kit for providers whose sandboxes are in a cloud: what does not
// depend on whose cloud it is. A provider translates between it and the API of its service,
// and adds what differs: how sandboxes are made, found, kept alive and ended.
//
//   - This package: executions by their IDs, turns, names.
//   - supervise: the supervisor of each program in a sandbox, and what its report means.
//   - stream, place: the two ways to run programs under it: where the service streams what
//     a process prints, and where it only runs short commands.
//   - guestfiles: the files of a sandbox, with the rights of its user.
//   - artifacts: the files that an execution has made.
//   - kernel: contexts in the kernels of a service, and the cells that run in them.
//   - frames: messages of our own among the output of a program.
//
// See docs/remote-providers.md for which part a new provider needs.
package remote

import (
	"crypto/rand"
	"encoding/hex"
)

// Workspace is where code works by the contract.
const Workspace = "/workspace"

// NewName is one that nobody has used before: 24 hexadecimal digits.
func NewName() string {
	random := make([]byte, 12)
	_, _ = rand.Read(random) // never fails, by its documentation
	return hex.EncodeToString(random)
}
