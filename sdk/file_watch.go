package sdk

import "context"

// FileWatcher is implemented by providers that can tell of changes of files.
// Errors are those of Files.
type FileWatcher interface {
	// WatchFiles calls ready once it watches, then changed for what changes below
	// a directory, until ctx ends or one of them fails; it returns that error. What changes
	// after ready is called is told, in the order in which it happened, several at once
	// where that is cheaper; changed is called by one goroutine at a time. A watch that
	// cannot keep up says FileChangesLost instead of waiting: whoever follows looks anew.
	WatchFiles(ctx context.Context, req WatchFilesRequest, ready func() error, changed func([]FileChange) error) error
}

// WatchFilesRequest says what to watch.
type WatchFilesRequest struct {
	InstanceID, Path string
	// Recursive watches all directories below, those made later too.
	Recursive bool
}

// FileChange is a change of a file.
type FileChange struct {
	Kind FileChangeKind
	// Path is absolute; empty for FileChangesLost.
	Path string
}

// FileChangeKind says what happened.
type FileChangeKind string

// The kinds. What is moved into the directory is created there.
const (
	FileCreated  FileChangeKind = "created"
	FileModified FileChangeKind = "modified"
	FileRemoved  FileChangeKind = "removed"
	FileRenamed  FileChangeKind = "renamed" // away from Path
	// FileChangesLost means that there were more changes than could be told.
	FileChangesLost FileChangeKind = "overflow"
)
