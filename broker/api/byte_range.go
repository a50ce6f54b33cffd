package api

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteRange is what the header Range asks for. The zero value is all.
type byteRange struct {
	given bool
	// offset from the end if negative; length 0 is to the end.
	offset, length int64
}

// parseRange reads a range of bytes. Several at once, other units and what makes
// no sense are all, as RFC 9110 allows.
func parseRange(header string) byteRange {
	spec, ok := strings.CutPrefix(header, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !dash {
		return byteRange{}
	}
	from, fromErr := strconv.ParseUint(first, 10, 63)
	to, toErr := strconv.ParseUint(last, 10, 63)
	switch {
	case first == "" && toErr == nil && to > 0:
		return byteRange{given: true, offset: -int64(to)}
	case fromErr == nil && last == "":
		return byteRange{given: true, offset: int64(from)}
	case fromErr == nil && toErr == nil && from <= to && to-from < math.MaxInt64:
		return byteRange{given: true, offset: int64(from), length: int64(to-from) + 1}
	default:
		return byteRange{}
	}
}

// of returns which bytes of a file of a size are meant.
func (r byteRange) of(size int64) (from, count int64) {
	from = r.offset
	if from < 0 {
		from = max(from+size, 0)
	}
	from = min(from, size)
	count = size - from
	if r.length > 0 {
		count = min(count, r.length)
	}
	return from, count
}

// unsatisfiableRange begins behind the end of a file.
type unsatisfiableRange struct{ size int64 }

func (e *unsatisfiableRange) Error() string {
	return fmt.Sprintf("The range begins behind the end of the file, which has %d bytes.", e.size)
}
