// Package frames reads what a runner, the script that runs user code in an
// interpreter, reports to the guest beside the code's own output: a line of JSON
// and the bytes that it announces, again and again.
//
// Code shares its process with the runner and can write there whatever it likes,
// so nothing that comes is believed: lengths are bounded, and what is longer than
// its reader wants is passed over without being kept.
package frames

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Kinds of frames.
const (
	Inspection = "inspection" // the first of Python's: what the code policy says, before any of the code has run
	Value      = "value"      // JSON that main returned
	Result     = "result"     // a representation of the last expression's value
	Display    = "display"    // one of something that the code showed
	Done       = "done"       // the execution has ended; in contexts alone
)

// Frame is one report.
type Frame struct {
	Kind string `json:"kind"`
	// Length of Data; 0 if there is none.
	Length int64 `json:"length"`
	// MIMEType, Group, Size and Refused describe an artifact.
	MIMEType string `json:"mime"`
	Group    int32  `json:"group"`
	Size     int64  `json:"size"`
	Refused  string `json:"refused"`
	// Call says in an Inspection whether main will be called.
	Call bool `json:"call"`
	// Execution says in a context which one reports, counted from 1.
	Execution int64 `json:"execution"`
	// ExitCode and PeakBytes belong to Done. PeakBytes is of the interpreter
	// since its start.
	ExitCode  int32 `json:"exit_code"`
	PeakBytes int64 `json:"peak_bytes"`

	// Data is nil if it was longer than wanted.
	Data []byte `json:"-"`
}

// maxHeader bounds the line of JSON.
const maxHeader = 8 << 10

// errHeader is what a reader ends with after a line that is no header: nothing
// behind it can be understood.
var errHeader = errors.New("a header is not acceptable")

// Reader reads frames.
type Reader struct {
	from *bufio.Reader
}

// NewReader returns a reader of from.
func NewReader(from io.Reader) *Reader {
	return &Reader{bufio.NewReaderSize(from, maxHeader)}
}

// Next returns the next frame, with its data if wanted says yes to what its
// header tells. At the end the error is io.EOF.
func (r *Reader) Next(wanted func(Frame) bool) (Frame, error) {
	line, err := r.from.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0:
		return Frame{}, io.EOF
	case errors.Is(err, io.EOF):
		return Frame{}, io.ErrUnexpectedEOF
	case errors.Is(err, bufio.ErrBufferFull):
		return Frame{}, errHeader
	case err != nil:
		return Frame{}, fmt.Errorf("read a frame: %w", err)
	}
	var f Frame
	if err := json.Unmarshal(line, &f); err != nil || f.Length < 0 {
		return Frame{}, errHeader
	}
	f.MIMEType, f.Refused = strings.ToValidUTF8(f.MIMEType, ""), strings.ToValidUTF8(f.Refused, "")
	if !wanted(f) {
		if _, err := io.CopyN(io.Discard, r.from, f.Length); err != nil {
			return Frame{}, io.ErrUnexpectedEOF
		}
		return f, nil
	}
	// What never comes is not made room for.
	if f.Data, err = io.ReadAll(io.LimitReader(r.from, f.Length)); err != nil || int64(len(f.Data)) < f.Length {
		return Frame{}, io.ErrUnexpectedEOF
	}
	return f, nil
}
