// Package local is a provider for the tests of the conformance suite: the whole
// contract over processes of this machine.
//
// It really runs code, with the interpreters that are installed here, and keeps
// every promise but one: it isolates nothing. What needs a file system or a
// network of its own, such as /workspace as an absolute path for code, it does not
// have, and the tests skip that by name.
//
// The parts are one file each, named after what they implement. process.go has what all
// of them stand on: the SDK's processtree, in the environment of an instance.
package local
