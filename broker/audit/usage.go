package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// UsageSince calls visit with the Usage of each effect that began after a line, in the
// order of the lines. found is false if the log does not have that line: it is another log
// then, or one that was cut, and nothing is visited. The error says which files cannot be
// read; the others behind the line are visited all the same.
func (l *Log) UsageSince(seq uint64, hash string, visit func(usage json.RawMessage)) (found bool, err error) {
	segments, err := Segments(l.options.Dir)
	if err != nil {
		return false, err
	}
	for i, s := range segments {
		if i+1 < len(segments) && segments[i+1].First <= seq {
			continue
		}
		err = errors.Join(err, usageIn(s, seq, hash, &found, visit))
		if !found {
			return false, err
		}
	}
	return found, err
}

// usageIn visits the lines of one file behind that with the given number, and takes down
// whether it has come by that.
func usageIn(s Segment, seq uint64, hash string, found *bool, visit func(json.RawMessage)) error {
	r, err := OpenReader(s.Path, s.Compressed)
	if err != nil {
		return fmt.Errorf("read %s: %w", s.Path, err)
	}
	defer r.Close()
	for {
		text, err := r.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, errTorn) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", s.Path, err)
		}
		at := numberOf(text)
		if at < seq || at > seq && !bytes.Contains(text, []byte(usageKey)) {
			continue
		}
		line, err := ParseLine(text)
		if err != nil {
			continue // somebody has changed it: it says nothing
		}
		if at == seq && line.Hash.String() == hash {
			*found = true
		}
		var c struct {
			Usage json.RawMessage `json:"usage"`
		}
		if *found && at > seq && json.Unmarshal(text, &c) == nil && c.Usage != nil {
			visit(c.Usage)
		}
	}
}

const usageKey = `,"usage":`

// numberOf is what a line says of its number, 0 if it says nothing.
func numberOf(text []byte) uint64 {
	rest, _ := bytes.CutPrefix(text, []byte(seqKey))
	number, _, _ := bytes.Cut(rest, []byte(","))
	seq, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		return 0
	}
	return seq
}
