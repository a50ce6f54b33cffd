// Package guestfiles does with the files of a sandbox what envd cannot: it describes,
// lists, moves and copies them with the rights of the user, and keeps to the contract of
// sdk.Files about what is in the way of what. For that it has a small Python program,
// which runs once for each call. The content of files goes through envd.
package guestfiles

import (
	"bytes"
	"compress/zlib"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

//go:embed files.py
var program string

// Op is what to do.
type Op string

// The operations. Draft makes an empty file for content, Commit gives it its name,
// Discard removes it.
const (
	Stat    Op = "stat"
	Open    Op = "open"
	List    Op = "list"
	Draft   Op = "draft"
	Commit  Op = "commit"
	Discard Op = "discard"
	MkDir   Op = "mkdir"
	Move    Op = "move"
	Copy    Op = "copy"
	Remove  Op = "remove"
)

// Request is one operation.
type Request struct {
	Op        Op          `json:"op"`
	Path      string      `json:"path"`
	To        string      `json:"to,omitempty"`
	Draft     string      `json:"draft,omitempty"`
	Mode      fs.FileMode `json:"mode"`
	Parents   bool        `json:"parents"`
	Overwrite bool        `json:"overwrite"`
	Recursive bool        `json:"recursive"`
	Depth     int         `json:"depth"`
	Most      int         `json:"most"`
}

// Answer is what came of it.
type Answer struct {
	File  File
	Files []File
	// More says that the list was cut.
	More bool
	// Mode of the file that a draft is to replace; 0 if there is none.
	Mode fs.FileMode
	// Real is where the file to open is, behind all links.
	Real string

	Code, Message, Field string
}

// File is a description.
type File struct {
	Path, Type string
	Size       int64
	Mode       fs.FileMode
	Modified   int64 // nanoseconds of Unix
	Target     string
}

// Info is the description in the broker's words.
func (f File) Info() sdk.FileInfo {
	return sdk.FileInfo{Path: f.Path, Type: sdk.FileType(f.Type), Size: f.Size, Mode: f.Mode.Perm(), ModifiedAt: time.Unix(0, f.Modified), Target: f.Target}
}

// Program is what envd is to start for a request.
func (r Request) Program() (envd.Program, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return envd.Program{}, fmt.Errorf("encode a request: %w", err)
	}
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write(text) // a buffer takes everything
	_ = w.Close()
	return envd.Program{
		Cmd: "python3", Args: []string{"-I", "-c", program}, Cwd: "/",
		Envs: map[string]string{"SANDBOX_REQUEST": base64.StdEncoding.EncodeToString(b.Bytes())},
	}, nil
}

var codes = map[string]sdk.Code{
	"not_found": sdk.CodeNotFound, "not_allowed": sdk.CodeNotAllowed, "conflict": sdk.CodeConflict,
	"full": sdk.CodeQuotaExceeded, "invalid": sdk.CodeInvalidRequest,
}

// ReadAnswer reads what the program has printed. A refusal is an error with the code
// that it has in the contract.
func ReadAnswer(text []byte, exit int) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(text, &a); err != nil || exit != 0 {
		return a, sdk.Errorf(sdk.CodeUnavailable, "the sandbox could not look at its files (exit code %d); it needs python3", exit)
	}
	if a.Code == "" {
		return a, nil
	}
	code, ok := codes[a.Code]
	if !ok {
		code = sdk.CodeUnavailable
	}
	return a, sdk.FieldErrorf(code, a.Field, "%s", a.Message)
}
