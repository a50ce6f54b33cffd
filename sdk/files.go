package sdk

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// Files is implemented by providers that can read and write the files of an
// instance.
//
// Paths are inside the instance; relative ones begin at /workspace. The calls may
// touch what code in the instance may touch and nothing else: no symbolic link,
// "..", device or name leads out. Errors are CodeNotFound for an unknown instance
// or file, CodeInvalidRequest with the field "path" for a path that cannot be,
// CodeConflict where something is in the way (a directory for a file, a file that
// exists), CodeNotAllowed where the instance's own rights end, and
// CodeQuotaExceeded when its disk is full.
//
// A name that is not UTF-8 is shown with U+FFFD for what is not, and cannot be
// asked for; only archives carry it.
type Files interface {
	// StatFile does not follow a symbolic link at the end of the path.
	StatFile(ctx context.Context, instanceID, path string) (FileInfo, error)
	// ListFiles passes on what is below a directory in the order of paths,
	// and says whether there was more than the limit. It follows no symbolic
	// link.
	ListFiles(ctx context.Context, req ListFilesRequest, found func([]FileInfo) error) (truncated bool, err error)
	// ReadFile opens a regular file. Whoever reads closes the reader, at any
	// time; it ends with ctx too.
	ReadFile(ctx context.Context, req ReadFileRequest) (FileInfo, io.ReadCloser, error)
	// WriteFile makes or replaces a regular file. It appears whole, when content
	// has ended with io.EOF, or not at all: any other error of content leaves
	// everything as it was.
	WriteFile(ctx context.Context, req WriteFileRequest, content io.Reader) (FileInfo, error)
	// MakeDirectory makes a directory and its parents. One that exists is a
	// success.
	MakeDirectory(ctx context.Context, instanceID, path string, mode fs.FileMode) (FileInfo, error)
	// MoveFile renames a file or directory, across file systems too.
	MoveFile(ctx context.Context, req MoveFileRequest) (FileInfo, error)
	// CopyFile copies a file, or a directory with all that is in it; symbolic
	// links as such.
	CopyFile(ctx context.Context, req MoveFileRequest) (FileInfo, error)
	// RemoveFile removes a file, a symbolic link, an empty directory or, with
	// recursive, a directory with all that is in it.
	RemoveFile(ctx context.Context, instanceID, path string, recursive bool) error
}

// FileType says what a file is.
type FileType string

// The types.
const (
	FileRegular   FileType = "file"
	FileDirectory FileType = "directory"
	FileSymlink   FileType = "symlink"
	FileOther     FileType = "other" // socket, pipe, device
)

// FileInfo describes a file.
type FileInfo struct {
	// Path is absolute.
	Path string
	Type FileType
	// Size in bytes of a regular file.
	Size int64
	// Mode has permission bits only.
	Mode       fs.FileMode
	ModifiedAt time.Time
	// Target of a symbolic link, as it is written there.
	Target string
}

// ListFilesRequest asks what is in a directory.
type ListFilesRequest struct {
	InstanceID, Path string
	// Depth in levels; 1 is the directory's own entries.
	Depth int
	// Glob selects by path relative to Path: *, ?, [a-z], {a,b}, and ** for any
	// number of directories. Empty selects all.
	Glob string
	// Limit of entries; always positive.
	Limit int
}

// ReadFileRequest asks for bytes of a file.
type ReadFileRequest struct {
	InstanceID, Path string
	// Offset of the first byte; negative counts from the end.
	Offset int64
	// Length at most; 0 for all.
	Length int64
}

// WriteFileRequest says which file to write.
type WriteFileRequest struct {
	InstanceID, Path string
	// Mode has permission bits; 0 keeps those of the file that is replaced,
	// 0644 for a new one.
	Mode fs.FileMode
	// MakeParents makes directories that are missing.
	MakeParents bool
}

// MoveFileRequest says what to move or copy where.
type MoveFileRequest struct {
	InstanceID, From, To string
	// Overwrite replaces a file that is at To; a directory is never replaced.
	Overwrite bool
}
