package audit

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Segment is one file of the log.
type Segment struct {
	// Path of the file. It ends in .gz for one that was compressed.
	Path string
	// Day (UTC) in which it was begun, as 2006-01-02.
	Day string
	// First is the number of its first line.
	First uint64
	// Compressed with gzip.
	Compressed bool
}

var segmentName = regexp.MustCompile(`^audit-(\d{4}-\d{2}-\d{2})-(\d{12,20})\.jsonl(\.gz)?$`)

// pathOf names a segment. The number makes it one of its own, whatever the clock
// does, and sorts those of a day.
func pathOf(dir, day string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("audit-%s-%012d.jsonl", day, first))
}

// parseSegment reads the name of a segment.
func parseSegment(path string) (Segment, bool) {
	m := segmentName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return Segment{}, false
	}
	first, err := strconv.ParseUint(m[2], 10, 64)
	return Segment{Path: path, Day: m[1], First: first, Compressed: m[3] != ""}, err == nil
}

// Segments lists the files of a log in the order of their lines. Of a file that is
// there compressed and as it was, it lists the latter: the compression was not
// finished.
func Segments(dir string) ([]Segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []Segment
	for _, e := range entries {
		if s, ok := parseSegment(filepath.Join(dir, e.Name())); ok && e.Type().IsRegular() {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Path, b.Path))
	})
	return slices.CompactFunc(list, func(a, b Segment) bool { return b.Path == a.Path+".gz" }), nil
}

func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }
