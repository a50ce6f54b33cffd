// Package guestfiles does with the files of a sandbox what its service cannot: it
// describes, lists, moves and copies them with the rights of the user, and keeps to the
// contract of sdk.Files about what is in the way of what, and finds and replaces text. For
// that it has a small Python program, files.py and text.py, which does one thing each time
// it runs.
//
// How the program gets into the sandbox and its answer out, and how the content of large
// files does, is a Store's, of each provider; Calls are the methods of sdk.Files over one.
package guestfiles

import (
	"context"
	_ "embed"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	//go:embed files.py
	filesProgram string
	//go:embed text.py
	textProgram string
)

// Program is the program with its last lines, which read a Request, as JSON, give it to
// the function answer, and print what that returns, an Answer. The modules base64, json,
// os and sys are imported.
func Program(last string) string { return filesProgram + "\n\n" + textProgram + "\n\n" + last + "\n" }

// Store is the files of the sandboxes of a provider, as its service lets them be used.
type Store interface {
	// Do has the program in a sandbox make one operation. A refusal is an error.
	Do(ctx context.Context, instanceID string, req Request) (Answer, error)
	// Open reads so much of a file from an offset on, which need not be there any more.
	Open(ctx context.Context, instanceID, name string, offset, length int64) (io.ReadCloser, error)
	// Fill puts content into the draft of a request, which is there and empty. An error of
	// content is returned as it is.
	Fill(ctx context.Context, instanceID string, req Request, content io.Reader) error
}

// Op is what to do.
type Op string

// The operations. Draft makes an empty file for content, Append adds to it, Commit gives
// it its name, Discard removes it.
const (
	Stat    Op = "stat"
	Open    Op = "open"
	List    Op = "list"
	Draft   Op = "draft"
	Append  Op = "append"
	Commit  Op = "commit"
	Discard Op = "discard"
	MkDir   Op = "mkdir"
	Chmod   Op = "chmod"
	Move    Op = "move"
	Copy    Op = "copy"
	Remove  Op = "remove"
	// Marks tells of the files that an execution may have made.
	Marks Op = "marks"
	// Search tells of lines that may match, Replace replaces a text.
	Search  Op = "search"
	Replace Op = "replace"
)

// Repeatable says whether an operation can be asked for again when its answer was lost.
func (op Op) Repeatable() bool { return op != Move && op != Copy && op != Remove && op != Replace }

// Request is one operation.
type Request struct {
	Op Op `json:"op"`
	// Workspace is where relative paths begin.
	Workspace string      `json:"workspace"`
	Path      string      `json:"path"`
	To        string      `json:"to,omitempty"`
	Draft     string      `json:"draft,omitempty"`
	Mode      fs.FileMode `json:"mode"`
	Parents   bool        `json:"parents"`
	Overwrite bool        `json:"overwrite"`
	Recursive bool        `json:"recursive"`
	Depth     int         `json:"depth"`
	// Most is how many entries List has, how many bytes Open reads, and after how many
	// bytes of lines Search ends.
	Most   int   `json:"most"`
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
	// Data or Upload is what Append adds: bytes, or a file that somebody has written.
	Data   []byte `json:"data"`
	Upload string `json:"upload"`
	// Names are those whose sizes Marks is to tell. Make has it make artifacts/ before.
	Names []string `json:"names"`
	Make  bool     `json:"make"`
	// Needles and Endings are those of filetext.Search. Cursor is that of the answer before.
	// Inside has Search look through a directory, and pass over Path if it is a file.
	Needles [][][]string `json:"needles"`
	Endings []string     `json:"endings"`
	Cursor  []byte       `json:"cursor"`
	Inside  bool         `json:"inside"`
	// Paths are where Replace replaces Old by New.
	Paths []string `json:"paths"`
	Old   []byte   `json:"old"`
	New   []byte   `json:"new"`
	// Seconds are after which Search and Replace leave the rest to another call.
	Seconds int `json:"seconds"`
}

// maxPath is PATH_MAX of Linux.
const maxPath = 4096

// Check refuses paths that cannot be.
func (r Request) Check() error {
	check := func(field, name string) error {
		switch {
		case name == "":
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "is empty")
		case strings.ContainsRune(name, 0):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "has a NUL in it")
		case len(name) >= maxPath:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "is too long")
		}
		return nil
	}
	for _, name := range r.Paths {
		if err := check("paths", name); err != nil {
			return err
		}
	}
	if r.To != "" || r.Op == Move || r.Op == Copy {
		if err := check("to", r.To); err != nil {
			return err
		}
	}
	return check("path", r.Path)
}

// Answer is what came of it.
type Answer struct {
	File  File
	Files []File
	// More says that the list was cut.
	More bool
	// Mode of the file that a draft is to replace; 0 if there is none.
	Mode fs.FileMode
	// Real is where the file to open is, behind all links, and Offset and Length are
	// the part that was asked for. If Whole is set Data has it.
	Real           string
	Offset, Length int64
	Whole          bool
	// Data of Search are the lines: see sift.
	Data []byte
	// Sizes are of the Names, -1 for what is no regular file.
	Sizes []int64
	// Cursor is where Search goes on; empty if it has come to its end. Skipped says that
	// directories were left out.
	Cursor  []byte
	Skipped bool
	// Failed is why Replace did not change the last of the Files.
	Failed *Reason

	Reason
}

// Reason is why something was not done; Code is empty if it was.
type Reason struct{ Code, Message, Field string }

var codes = map[string]sdk.Code{
	"not_found": sdk.CodeNotFound, "not_allowed": sdk.CodeNotAllowed, "conflict": sdk.CodeConflict,
	"full": sdk.CodeQuotaExceeded, "invalid": sdk.CodeInvalidRequest,
}

// Refusal is the error for it, with the code that it has in the contract; nil if it was.
func (r Reason) Refusal() error {
	if r.Code == "" {
		return nil
	}
	return sdk.FieldErrorf(r.code(), r.Field, "%s", r.Message)
}

func (r Reason) code() sdk.Code {
	if code, ok := codes[r.Code]; ok {
		return code
	}
	return sdk.CodeUnavailable
}

// File is a description.
type File struct {
	Path, Type string
	Size       int64
	Mode       fs.FileMode
	Modified   int64 // nanoseconds of Unix
	Target     string
	// Below is the path relative to the directory that is listed.
	Below string
	// Count is how often Replace found the text.
	Count int64
}

// Info is the description in the broker's words.
func (f File) Info() sdk.FileInfo {
	return sdk.FileInfo{Path: f.Path, Type: sdk.FileType(f.Type), Size: f.Size, Mode: f.Mode.Perm(), ModifiedAt: time.Unix(0, f.Modified), Target: f.Target}
}
