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

// NewHurriedArchive is NewArchive for searches and checks that take no longer than that.
func NewHurriedArchive(log *Log, search, check time.Duration) *Archive {
	a := NewArchive(log)
	a.searchTime, a.checkTime = search, check
	return a
}
