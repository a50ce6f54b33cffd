package lending

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Output is what was collected of a command's output, from some offset on and up to a
// limit for each stream.
type Output struct {
	Stdout, Stderr OutputPart
	// Truncated is set if something is missing at the beginning or at the end.
	Truncated bool

	limit int64
}

// OutputPart is what was collected of one stream.
type OutputPart struct {
	Begin int64 // offset of the first byte
	Bytes []byte
}

// Next is the offset of the first byte behind the part.
func (p *OutputPart) Next() int64 { return p.Begin + int64(len(p.Bytes)) }

// errFull ends the collection when there is no room.
var errFull = errors.New("there is no room for more output")

// take adds a piece. What does not follow on the one before is not taken: both
// it and its predecessor would be wrong about their place.
func (o *Output) take(piece sdk.CommandOutput) error {
	part := &o.Stdout
	if piece.Stream == sdk.Stderr {
		part = &o.Stderr
	}
	if len(part.Bytes) == 0 && piece.Offset > part.Begin {
		part.Begin, o.Truncated = piece.Offset, true
	}
	data := piece.Data
	if room := o.limit - int64(len(part.Bytes)); piece.Offset != part.Next() {
		data = nil
	} else if int64(len(data)) > room {
		data = data[:room]
	}
	part.Bytes = append(part.Bytes, data...)
	if len(data) < len(piece.Data) {
		o.Truncated = true
		return errFull
	}
	return nil
}

// drop is take for somebody who waits for the end: the rest is of no use.
func (o *Output) drop(piece sdk.CommandOutput) error {
	_ = o.take(piece) // says that it was cut, which Truncated does too
	return nil
}

// WholeRunes drops the beginning of a character that is cut off at the end.
func WholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		tail := b[len(b)-i:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// RuneCutter passes on the output of a command in pieces that do not end within a
// character, as long as its rest comes.
type RuneCutter struct {
	send func(sdk.CommandOutput) error
	// cut holds the beginning of a character whose rest has not come, of stdout
	// and of stderr.
	cut [2]sdk.CommandOutput
}

// NewRuneCutter returns one that calls send with each piece, none of them empty.
func NewRuneCutter(send func(sdk.CommandOutput) error) *RuneCutter {
	return &RuneCutter{send: send}
}

// Take passes on a piece. Its error is that of send.
func (r *RuneCutter) Take(piece sdk.CommandOutput) error {
	cut := &r.cut[0]
	if piece.Stream == sdk.Stderr {
		cut = &r.cut[1]
	}
	if cut.Offset+int64(len(cut.Data)) != piece.Offset {
		if err := r.pass(*cut); err != nil { // the rest of the character is lost
			return err
		}
		cut.Data = nil
	}
	data := append(cut.Data, piece.Data...)
	begin := piece.Offset - int64(len(cut.Data))
	whole := WholeRunes(data)
	*cut = sdk.CommandOutput{Stream: piece.Stream, Offset: begin + int64(len(whole)), Data: bytes.Clone(data[len(whole):])}
	return r.pass(sdk.CommandOutput{Stream: piece.Stream, Offset: begin, Data: whole})
}

// End passes on what was held back.
func (r *RuneCutter) End() error {
	for _, cut := range r.cut {
		if err := r.pass(cut); err != nil {
			return err
		}
	}
	return nil
}

func (r *RuneCutter) pass(piece sdk.CommandOutput) error {
	if len(piece.Data) == 0 {
		return nil
	}
	return r.send(piece)
}
