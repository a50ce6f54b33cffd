// Package packagelayers keeps what was installed for a set of packages: a directory for
// each, which sandboxes see and nobody changes.
//
// A layer is named by the sum of what is in it, and found by a key, which its user makes of
// all that an installation depends on. It comes as an archive whose content may be hostile;
// package layers makes the directory of it. It is there whole or not at all: it is made
// elsewhere on the same file system, is on the disk before it is put in its place, and its
// sum is compared before a process uses it for the first time.
//
// Several processes may share the directory. What one of them uses none of them removes, nor
// what Options.Needed names. Of the rest, the longest unused goes first.
package packagelayers
