// Package guestfiles does with the files of a sandbox what its service cannot: it
// describes, lists, moves and copies them with the rights of the user, and keeps to the
// contract of sdk.Files about what is in the way of what. For that it has a small Python
// program, files.py, which does one thing each time it runs.
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

//go:embed files.py
var program string

// Program is the program with its last lines, which read a Request, as JSON, give it to
// the function answer, and print what that returns, an Answer. The modules base64, json,
// os and sys are imported.
func Program(last string) string { return program + "\n\n" + last + "\n" }

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
)

// Repeatable says whether an operation can be asked for again when its answer was lost.
func (op Op) Repeatable() bool { return op != Move && op != Copy && op != Remove }

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
	// Most is how many entries List has, and how many bytes Open reads.
	Most   int   `json:"most"`
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
	// Data or Upload is what Append adds: bytes, or a file that somebody has written.
	Data   []byte `json:"data"`
	Upload string `json:"upload"`
	// Names are those whose sizes Marks is to tell. Make has it make artifacts/ before.
	Names []string `json:"names"`
	Make  bool     `json:"make"`
}

// maxPath is PATH_MAX of Linux.
const maxPath = 4096

// Check refuses paths that cannot be.
func (r Request) Check() error {
	for field, name := range map[string]string{"path": r.Path, "to": r.To} {
		switch {
		case name == "" && (field == "path" || r.Op == Move || r.Op == Copy):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "is empty")
		case strings.ContainsRune(name, 0):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "has a NUL in it")
		case len(name) >= maxPath:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "is too long")
		}
	}
	return nil
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
	Data           []byte
	// Sizes are of the Names, -1 for what is no regular file.
	Sizes []int64

	Code, Message, Field string
}

var codes = map[string]sdk.Code{
	"not_found": sdk.CodeNotFound, "not_allowed": sdk.CodeNotAllowed, "conflict": sdk.CodeConflict,
	"full": sdk.CodeQuotaExceeded, "invalid": sdk.CodeInvalidRequest,
}

// Refusal is why it was not done, with the code that it has in the contract; nil if it
// was.
func (a Answer) Refusal() error {
	if a.Code == "" {
		return nil
	}
	code, ok := codes[a.Code]
	if !ok {
		code = sdk.CodeUnavailable
	}
	return sdk.FieldErrorf(code, a.Field, "%s", a.Message)
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
}

// Info is the description in the broker's words.
func (f File) Info() sdk.FileInfo {
	return sdk.FileInfo{Path: f.Path, Type: sdk.FileType(f.Type), Size: f.Size, Mode: f.Mode.Perm(), ModifiedAt: time.Unix(0, f.Modified), Target: f.Target}
}
