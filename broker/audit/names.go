package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// misnamed finds what a directory of a log holds under a name that the log would not give
// it, so that nothing reads it, and says whether its newest file is there. Errors of
// reading are told by those who read the files.
func misnamed(paths []string) *Problem {
	for _, dir := range paths {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // a file
		}
		var last uint64
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			s, ok := parseSegment(path)
			if ok && e.Type().IsRegular() {
				last = max(last, s.First)
			}
			if why := wrongName(e, s, ok); why != "" {
				return &Problem{Fault: FaultMisnamed, File: path, Line: 1, Detail: why}
			}
		}
		if newest, found, err := newestOf(dir); err == nil && found && last < newest.First {
			return &Problem{Fault: FaultMissing, File: newest.Path, Line: 1, Detail: "the newest file is not there"}
		}
	}
	return nil
}

// wrongName says what is wrong with the name of a file, "" for nothing. What a broker has
// set aside or begins to compress is known by its end.
func wrongName(e os.DirEntry, s Segment, ok bool) string {
	name := e.Name()
	switch {
	case !strings.HasPrefix(strings.ToLower(name), "audit"), e.IsDir() && !ok, strings.Contains(name, ".jsonl.torn-"), strings.HasSuffix(name, ".jsonl.gz.part"):
		return ""
	case !ok:
		return "it has not the name of a file of the log, audit-DAY-NUMBER.jsonl with a number of 12 digits, and is not read"
	case !e.Type().IsRegular():
		return "it is not a regular file, and is not read"
	case strings.TrimSuffix(name, ".gz") != filepath.Base(pathOf("", s.Day, s.First)):
		return fmt.Sprintf("the log would call it %s", filepath.Base(pathOf("", s.Day, s.First)))
	default:
		return ""
	}
}
