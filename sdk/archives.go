package sdk

import (
	"context"
	"io"
)

// Archiver is implemented by providers that take and give many files at once, as
// a tar stream without compression. Errors are those of Files.
type Archiver interface {
	// ReadArchive streams files and directories below a directory, by names
	// relative to it. Symbolic links come as such; devices, sockets and pipes
	// are left out. Whoever reads closes the reader.
	ReadArchive(ctx context.Context, req ReadArchiveRequest) (io.ReadCloser, error)
	// WriteArchive unpacks regular files, directories and symbolic links below
	// a directory, over what is there. An entry with an absolute name, with
	// "..", of another type, or that leads through a symbolic link is refused
	// with CodeInvalidRequest, and ends the call there: what came before it
	// stays. So is an archive that lacks its end, two blocks of zeros: its sender
	// died between two entries. Package tarstream finds that.
	WriteArchive(ctx context.Context, instanceID, directory string, content io.Reader) (ArchiveSummary, error)
}

// ReadArchiveRequest says what to archive.
type ReadArchiveRequest struct {
	InstanceID, Directory string
	// Paths below Directory; none for all of it.
	Paths []string
}

// ArchiveSummary tells what was unpacked.
type ArchiveSummary struct{ Files, Bytes int64 }
