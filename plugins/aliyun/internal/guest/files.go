package guest

import (
	"context"
	"io/fs"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Op is what to do with a file.
type Op string

// The operations. Draft makes an empty file for content, Append adds to it, Commit
// gives it its name, Discard removes it.
const (
	Stat    Op = "stat"
	Open    Op = "open"
	List    Op = "list"
	Draft   Op = "draft"
	Append  Op = "append"
	Commit  Op = "commit"
	Discard Op = "discard"
	MkDir   Op = "mkdir"
	Move    Op = "move"
	Copy    Op = "copy"
	Remove  Op = "remove"
)

// Repeatable says whether an operation can be asked for again when its answer was lost.
func (op Op) Repeatable() bool { return op != Move && op != Copy && op != Remove }

// FileRequest is one operation.
type FileRequest struct {
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
	// Data or Upload is what Append adds: bytes, or a file that the service has
	// written.
	Data   []byte `json:"data"`
	Upload string `json:"upload"`
}

// FileAnswer is what came of it.
type FileAnswer struct {
	File  Entry
	Files []Entry
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

	Code, Message, Field string
}

// Entry is a description.
type Entry struct {
	Path, Type string
	Size       int64
	Mode       fs.FileMode
	Modified   int64 // nanoseconds of Unix
	Target     string
	// Below is the path relative to the directory that is listed.
	Below string
}

// Info is the description in the broker's words.
func (f Entry) Info() sdk.FileInfo {
	return sdk.FileInfo{Path: f.Path, Type: sdk.FileType(f.Type), Size: f.Size, Mode: f.Mode.Perm(), ModifiedAt: time.Unix(0, f.Modified), Target: f.Target}
}

var codes = map[string]sdk.Code{
	"not_found": sdk.CodeNotFound, "not_allowed": sdk.CodeNotAllowed, "conflict": sdk.CodeConflict,
	"full": sdk.CodeQuotaExceeded, "invalid": sdk.CodeInvalidRequest,
}

// Do does it. A refusal is an *sdk.Error with the code that it has in the contract.
func (req FileRequest) Do(ctx context.Context, r Runner) (FileAnswer, error) {
	var a FileAnswer
	output, err := send(ctx, r, fileAccess, req)
	if err == nil {
		err = parse(output, &a)
	}
	if err != nil || a.Code == "" {
		return a, err
	}
	code, ok := codes[a.Code]
	if !ok {
		code = sdk.CodeUnavailable
	}
	return a, sdk.FieldErrorf(code, a.Field, "%s", a.Message)
}

// Inline is the most bytes that Append takes as Data.
const Inline = inline
