// Package boltfile reads the file of a bbolt database as bytes, without mapping it
// into memory: it finds out whether bbolt may be let near the file, and reads out of
// a damaged one what can still be read.
//
// bbolt trusts its file. Of one that was cut it makes a fault of the machine, of wrong
// pages a panic or a recursion without end. Check looks at everything that bbolt will
// rely on, believes nothing, and never reads outside the file. Salvage is the same walk
// for a file that did not pass. Neither writes.
package boltfile
