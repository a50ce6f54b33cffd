package sdk

import "context"

// FileSearcher is implemented by providers that can look through the text of
// files where they are. Errors are those of Files.
type FileSearcher interface {
	// SearchFiles passes on the lines that match, in the order of paths, and
	// says whether there were more than the limit. Files that are not text are
	// passed over.
	SearchFiles(ctx context.Context, req SearchFilesRequest, found func([]FileMatch) error) (truncated bool, err error)
	// ReplaceInFiles replaces a text in files, each of them whole or not at
	// all, and tells how often. If one file fails, those before it are changed
	// and the error names it.
	ReplaceInFiles(ctx context.Context, req ReplaceInFilesRequest) ([]FileReplacement, error)
}

// SearchFilesRequest says what to look for and where.
type SearchFilesRequest struct {
	// Path of a file, or of a directory to look through.
	InstanceID, Path string
	// Pattern in RE2 syntax, or plain text if Literal is set.
	Pattern             string
	Literal, IgnoreCase bool
	// Glob selects files as in ListFilesRequest.
	Glob string
	// Limit of matches; always positive. The search ends there, and says nothing of the
	// rest.
	Limit int
}

// FileMatch is a line that matches.
type FileMatch struct {
	Path string
	// Line and Column count from 1, columns in bytes.
	Line, Column int
	// Text of the line, cut at MaxMatchText bytes.
	Text string
}

// MaxMatchText is the most bytes of FileMatch.Text.
const MaxMatchText = 1 << 10

// ReplaceInFilesRequest says what to replace by what.
type ReplaceInFilesRequest struct {
	InstanceID string
	Paths      []string
	// Old is plain text and not empty. New may be, which takes Old out.
	Old, New string
}

// FileReplacement tells how often a file had the text.
type FileReplacement struct {
	Path  string
	Count int64
}
