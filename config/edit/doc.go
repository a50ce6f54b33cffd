// Package edit changes the files of a configuration in place, for the admin API
// and the command line. What is not meant by a change stays as it is, byte for
// byte: comments, order, alignment, env() and sealed().
//
// Open reads the files, the methods of Document change their text in memory, Save
// checks the whole and writes. The parser of HCL says where things are and its
// writer how values look; between the two, text is cut and put in. (The writer
// could do all of it, and would lay out the whole file anew.)
//
// Errors are sdk.Error: SB010 for what cannot be, such as a block that is not
// there; SB014 when the file says something else than was expected, or was changed
// meanwhile; SB012 when it may not be written. Mistakes in what comes out of a
// change are config.Diagnostics.
//
// Not here: what a configuration means (package config), encryption
// (config/seal), how a file is replaced (config/atomicfile).
package edit
