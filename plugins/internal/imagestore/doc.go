// Package imagestore keeps the root file systems of images in a directory that outlives
// the process, and that several processes may use at a time.
//
// source.go finds images: in a registry, with what logins.go lets go out, an archive or a
// directory. dockerfile.go makes the layers of a Dockerfile, of which package dockerfile says what
// is to be done, and the provider runs what is to be run. store.go is the
// directory: layers, each unpacked once, and images made of them, which are found again by
// what was asked for. locks.go says who uses what: a file that is locked for as long as a
// process lives that needs it, so that nothing is removed that somebody uses and nothing is
// kept for somebody who is gone.
//
// How layers become a root file system, and what hostile ones may not, is package layers'.
package imagestore
