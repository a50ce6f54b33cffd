// Package completion says what may come next on a command line, from the model that kong
// has of it, and has the scripts that make shells ask. The shells ask by the hidden
// command __complete, so that what they offer is never older than the program.
//
// A field of a command says by the tag complete what its values are: files, none, or a
// word that Options.Names knows. Flags of an enumeration need no tag.
//
// Not here: the names of what a broker has.
package completion
