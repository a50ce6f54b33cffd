package sdk

import (
	"context"
	"io/fs"
)

// FileModeSetter is implemented by providers that can change who may read, write and
// execute a file.
//
// Paths, rights and errors are those of Files.
type FileModeSetter interface {
	// SetFileMode sets the permission bits of a file or directory, all nine at once: 0
	// takes every right away. It needs to own the file, not to read it. A symbolic link
	// at the end of the path is followed, and what it leads to is described.
	SetFileMode(ctx context.Context, instanceID, path string, mode fs.FileMode) (FileInfo, error)
}
