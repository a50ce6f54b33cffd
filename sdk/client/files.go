package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// File describes a file in an instance.
type File struct {
	_          struct{}   `additionalProperties:"true"`
	Path       string     `json:"path" doc:"Absolute. What is not UTF-8 in a name is shown as U+FFFD." example:"/workspace/data/numbers.csv"`
	Type       string     `json:"type" enum:"file,directory,symlink,other" doc:"other is a socket, pipe or device."`
	Size       int64      `json:"size" doc:"Bytes of a file; else 0."`
	Mode       string     `json:"mode" doc:"Permission bits, octal." example:"0644"`
	ModifiedAt *time.Time `json:"modified_at,omitempty" doc:"Absent if the provider does not know."`
	Target     string     `json:"target,omitempty" doc:"Where a symbolic link points, as it is written there."`
}

// FileList holds entries in the order of their paths, a directory before what is
// in it.
type FileList struct {
	_         struct{} `additionalProperties:"true"`
	Files     []File   `json:"files" nullable:"false"`
	Truncated bool     `json:"truncated" doc:"There are more than the limit, or some could not be looked at."`
}

// UploadedFiles are those of a form, in its order.
type UploadedFiles struct {
	_     struct{} `additionalProperties:"true"`
	Files []File   `json:"files" nullable:"false"`
}

// MakeDirectoryRequest names a directory to make.
type MakeDirectoryRequest struct {
	Path string `json:"path" minLength:"1" maxLength:"4096" doc:"The directory; parents that are missing are made too."`
	Mode string `json:"mode,omitempty" minLength:"3" maxLength:"4" pattern:"^0?[0-7]{3}$" patternDescription:"three octal digits, behind a 0 if you like" doc:"Permission bits of a new directory; 0755 unless given." example:"0755"`
}

// SetFileModeRequest says which permission bits a file shall have.
type SetFileModeRequest struct {
	Path string `json:"path" minLength:"1" maxLength:"4096" doc:"The file or directory."`
	Mode string `json:"mode" minLength:"3" maxLength:"4" pattern:"^0?[0-7]{3}$" patternDescription:"three octal digits, behind a 0 if you like" doc:"All permission bits, octal; 000 takes every right away." example:"0755"`
}

// MoveFileRequest says what to move or copy where.
type MoveFileRequest struct {
	From      string `json:"from" minLength:"1" maxLength:"4096"`
	To        string `json:"to" minLength:"1" maxLength:"4096" doc:"The new path itself, not the directory to put it into. Its directory must exist."`
	Overwrite bool   `json:"overwrite,omitempty" doc:"Replace a file that is there. A directory is never replaced."`
}

// SearchFilesRequest says what to look for and where.
type SearchFilesRequest struct {
	Pattern    string `json:"pattern" minLength:"1" maxLength:"1000" doc:"A regular expression in RE2 syntax, matched line by line."`
	Path       string `json:"path,omitempty" minLength:"1" maxLength:"4096" doc:"A file, or a directory to look through; /workspace unless given, of a volume its root."`
	Literal    bool   `json:"literal,omitempty" doc:"The pattern is plain text."`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Glob       string `json:"glob,omitempty" minLength:"1" maxLength:"1000" doc:"Which files, by their path below path: *, ?, [a-z], {a,b}, and ** for any directories." example:"**/*.py"`
	Limit      int    `json:"limit,omitempty" minimum:"1" maximum:"10000" doc:"Matches at most; 100 unless given."`
}

// FileMatch is a line that matches.
type FileMatch struct {
	_      struct{} `additionalProperties:"true"`
	Path   string   `json:"path"`
	Line   int      `json:"line" doc:"From 1."`
	Column int      `json:"column" doc:"From 1, in bytes."`
	Text   string   `json:"text" doc:"The line, its first 1024 bytes."`
}

// FileMatchList holds matches in the order of paths and lines.
type FileMatchList struct {
	_         struct{}    `additionalProperties:"true"`
	Matches   []FileMatch `json:"matches" nullable:"false"`
	Truncated bool        `json:"truncated" doc:"There are more than the limit, or some files could not be looked at."`
}

// ReplaceInFilesRequest says what to replace by what.
type ReplaceInFilesRequest struct {
	Paths []string `json:"paths" minItems:"1" maxItems:"1000" nullable:"false" doc:"Files."`
	Old   string   `json:"old" minLength:"1" doc:"Plain text; it may span lines."`
	New   string   `json:"new" doc:"What comes in its place; may be empty."`
}

// FileReplacement tells how often a file had the text.
type FileReplacement struct {
	_     struct{} `additionalProperties:"true"`
	Path  string   `json:"path"`
	Count int64    `json:"count" doc:"0 leaves the file untouched."`
}

// FileReplacementList has one entry for each file of the request, in its order.
type FileReplacementList struct {
	_     struct{}          `additionalProperties:"true"`
	Files []FileReplacement `json:"files" nullable:"false"`
}

// ArchiveSummary tells what was unpacked.
type ArchiveSummary struct {
	_     struct{} `additionalProperties:"true"`
	Files int64    `json:"files" doc:"Files and symbolic links."`
	Bytes int64    `json:"bytes"`
}

// WatchReady says that changes are told from now on.
type WatchReady struct {
	_ struct{} `additionalProperties:"true"`
}

// FileChange is a change of a file.
type FileChange struct {
	_    struct{} `additionalProperties:"true"`
	Kind string   `json:"kind" enum:"created,modified,removed,renamed,overflow" doc:"created is also what was moved here, or written whole over what was there; renamed is what was moved away. overflow means that there were more changes than could be told: look for yourself. Values may be added."`
	Path string   `json:"path,omitempty" doc:"Absolute; absent for overflow."`
}

const mediaBytes = "application/octet-stream"

// ListFiles lists a directory. The query may have path, depth, glob and limit.
func (c *Client) ListFiles(ctx context.Context, id string, query url.Values) (FileList, error) {
	return ask[FileList](ctx, c, Request{Method: get, Path: below(id, "files"), Query: query})
}

// StatFile describes a file.
func (c *Client) StatFile(ctx context.Context, id, path string) (File, error) {
	return ask[File](ctx, c, Request{Method: get, Path: below(id, "files", "stat"), Query: url.Values{"path": {path}}})
}

// ReadFile returns the content of a file, which must be closed.
func (c *Client) ReadFile(ctx context.Context, id, path string) (io.ReadCloser, error) {
	return c.download(ctx, below(id, "files", "content"), url.Values{"path": {path}}, mediaBytes)
}

// WriteFile writes a file, which appears whole or not at all. The query may have mode and
// parents beside path.
func (c *Client) WriteFile(ctx context.Context, id string, query url.Values, content io.Reader) (File, error) {
	return ask[File](ctx, c, Request{
		Method: http.MethodPut, Path: below(id, "files", "content"), Query: query, Body: content, ContentType: mediaBytes,
	})
}

// RemoveFile removes a file, or with recursive a directory.
func (c *Client) RemoveFile(ctx context.Context, id, path string, recursive bool) error {
	_, err := ask[struct{}](ctx, c, Request{
		Method: http.MethodDelete, Path: below(id, "files"), Query: url.Values{"path": {path}, "recursive": {strconv.FormatBool(recursive)}},
	})
	return err
}

// MakeDirectory makes a directory.
func (c *Client) MakeDirectory(ctx context.Context, id string, req MakeDirectoryRequest) (File, error) {
	return ask[File](ctx, c, Request{Method: post, Path: below(id, "files", "directories"), Body: req})
}

// SetFileMode sets the permission bits of a file.
func (c *Client) SetFileMode(ctx context.Context, id string, req SetFileModeRequest) (File, error) {
	return ask[File](ctx, c, Request{Method: post, Path: below(id, "files", "mode"), Body: req})
}

// MoveFile moves or renames a file or directory.
func (c *Client) MoveFile(ctx context.Context, id string, req MoveFileRequest) (File, error) {
	return ask[File](ctx, c, Request{Method: post, Path: below(id, "files", "move"), Body: req})
}

// CopyFile copies a file, or a directory with all that is in it.
func (c *Client) CopyFile(ctx context.Context, id string, req MoveFileRequest) (File, error) {
	return ask[File](ctx, c, Request{Method: post, Path: below(id, "files", "copy"), Body: req})
}

// SearchFiles finds text in files.
func (c *Client) SearchFiles(ctx context.Context, id string, req SearchFilesRequest) (FileMatchList, error) {
	return ask[FileMatchList](ctx, c, Request{Method: post, Path: below(id, "files", "search"), Body: req})
}

// ReplaceInFiles replaces a text in files.
func (c *Client) ReplaceInFiles(ctx context.Context, id string, req ReplaceInFilesRequest) (FileReplacementList, error) {
	return ask[FileReplacementList](ctx, c, Request{Method: post, Path: below(id, "files", "replace"), Body: req})
}

// WatchFiles tells what changes in a directory. The query may have path and recursive.
func (c *Client) WatchFiles(ctx context.Context, id string, query url.Values) (*Events, error) {
	return c.stream(ctx, Request{Method: get, Path: below(id, "files", "watch"), Query: query})
}

// ReadArchive returns many files as a tar stream, which must be closed. The query may
// have directory and paths.
func (c *Client) ReadArchive(ctx context.Context, id string, query url.Values) (io.ReadCloser, error) {
	return c.download(ctx, below(id, "archive"), query, mediaTar)
}

// WriteArchive writes many files from a tar stream, plain or in gzip. The query may have
// directory.
func (c *Client) WriteArchive(ctx context.Context, id string, query url.Values, archive io.Reader) (ArchiveSummary, error) {
	return ask[ArchiveSummary](ctx, c, Request{
		Method: http.MethodPut, Path: below(id, "archive"), Query: query, Body: archive, ContentType: mediaTar,
	})
}

const mediaTar = "application/x-tar"

func (c *Client) download(ctx context.Context, path string, query url.Values, mediaType string) (io.ReadCloser, error) {
	resp, err := c.Do(ctx, Request{Method: get, Path: path, Query: query, Accept: mediaType})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
