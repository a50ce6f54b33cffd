// Package snapshotfile keeps snapshots on a disk: one file each, in a directory that all
// processes of a provider have together.
//
// A file begins with a header that anybody may read who may read the file. The content is
// encrypted with a key that is derived from the tenant's, in chunks of which none can be
// changed, left out, moved or added without being noticed (file.go, chunks.go). Files are
// written beside their place and put there when they are whole; what a process leaves that is
// killed meanwhile, the next one removes (dir.go).
package snapshotfile
