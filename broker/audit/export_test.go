package audit

import (
	"path/filepath"
	"time"
)

// IDOf names the effect of a record.
func IDOf(r *Record) string { return r.id }

// NameOf is the name of a file that begins at that time with that line.
func NameOf(at time.Time, first uint64) string { return filepath.Base(pathOf("", dayOf(at), first)) }

// Seal is for fuzzing.
func Seal(seq uint64, prev Hash, content []byte) []byte {
	text, _ := seal(nil, seq, prev, content)
	return text
}
