// Package audit keeps a log of everything that the broker does to sandboxes and to
// itself: append-only files of JSON lines, one a day, each line chained to the one
// before it by a hash.
//
// Start with Log. An effect has a line before it may happen (Log.Begin) and one
// with its outcome before anybody is told (Record.End). The first is on disk when the
// call returns, the second a little later. A line that cannot be written means that the effect does not
// happen. One goroutine writes (writer.go) and makes many lines durable at once; it
// opens a new file by day and size (segment.go) and repairs what a failure left.
// What a crash left is put in order at the next start (start.go). Old files are
// compressed and removed in housekeeping.go. Verify and Reader read the files, of a
// broker that runs or of one that does not.
//
// What counts as an effect is not decided here, but in package audited. Packages
// below this one send the lines to other machines.
package audit
