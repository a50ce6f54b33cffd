// Package archive packs a directory of this machine into a tar stream, and unpacks one that
// came from a sandbox, whose code may be hostile: nothing is written outside of the
// directory that was named, and no link is made that leads out of it.
//
// Not here: the transfer, and archives that are passed on as they are.
package archive
