package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Fault says in which way a line does not fit.
type Fault string

// The faults.
const (
	FaultChanged   Fault = "changed"   // what the line says is not what its hash was made of, or it follows another line
	FaultMissing   Fault = "missing"   // lines that should come before are not there
	FaultReordered Fault = "reordered" // it stands elsewhere, or again
	FaultTorn      Fault = "torn"      // it does not end
	FaultMisnamed  Fault = "misnamed"  // the file has not the name that the log gives it
)

// Problem is the first line that does not fit.
type Problem struct {
	Fault Fault `json:"fault"`
	// File and Line, counted from 1, say where.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Detail string `json:"detail"`
}

func (p *Problem) Error() string {
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Fault, p.Detail)
}

// Report is what Verify found.
type Report struct {
	// OK says that there is no Problem, and that the hash that was expected, if one
	// was, is in the chain.
	OK      bool     `json:"ok"`
	Problem *Problem `json:"problem,omitempty"`
	Files   int      `json:"files"`
	Lines   int      `json:"lines"`
	// Effects that began, and those among them that have not ended.
	Effects int `json:"effects"`
	Open    int `json:"open"`
	// First and Last line by number. LastHash is that of the last one: kept
	// elsewhere, it proves later that all this was there.
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	LastHash string `json:"last_hash"`
	// Before is the hash of the line before the first, which is taken on trust;
	// empty if the first is the very first. Explained says that a line of the log
	// tells of the removal of what was before.
	Before    string `json:"before,omitempty"`
	Explained bool   `json:"explained,omitempty"`
	// Expected says whether the expected hash was found, if there was one.
	Expected *bool `json:"expected,omitempty"`
}

// Verify reads the given files, or those in a directory, and checks that each line
// follows on the one before. It stops at the first that does not. expect, if not
// nil, is the hash of a line that must be among them. The error is one of reading.
func Verify(paths []string, expect *Hash) (Report, error) {
	return verify(paths, expect, nil)
}

// verify is Verify, and visits each line that is as it was written.
func verify(paths []string, expect *Hash, visit func(Line)) (Report, error) {
	segments, whole, err := find(paths)
	if err != nil {
		return Report{}, err
	}
	v := &verifier{open: map[string]bool{}, expect: expect, removed: map[string]bool{}, visit: visit}
	for _, s := range segments {
		v.report.Files++
		if err := v.file(s); err != nil {
			if !errors.As(err, &v.report.Problem) {
				return v.report, err
			}
			break
		}
	}
	report := v.finish()
	if whole && report.OK && report.Before != "" && !report.Explained {
		report.OK, report.Problem = false, unexplained(segments[0], report.First)
	}
	if report.Problem == nil {
		if report.Problem = misnamed(paths); report.Problem != nil {
			report.OK = false
		}
	}
	return report, nil
}

// unexplained is that the first of all files is not the first of the log.
func unexplained(first Segment, seq uint64) *Problem {
	return &Problem{
		Fault: FaultMissing, File: first.Path, Line: 1,
		Detail: fmt.Sprintf("it is number %d, those before it are not there, and no line says that they were removed for their age", seq),
	}
}

// find lists the files in the order of their lines. It says whole if a directory is
// among the paths: then there should be no others.
func find(paths []string) (segments []Segment, whole bool, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, false, err
		}
		if info.IsDir() {
			whole = true
			in, err := Segments(path)
			if err != nil {
				return nil, false, err
			}
			segments = append(segments, in...)
			continue
		}
		s, ok := parseSegment(path)
		if !ok {
			s = Segment{Path: path, Compressed: filepath.Ext(path) == ".gz"}
		}
		segments = append(segments, s)
	}
	if len(segments) == 0 {
		return nil, false, errors.New("there are no files of an audit log")
	}
	slices.SortStableFunc(segments, func(a, b Segment) int {
		switch {
		case a.First < b.First:
			return -1
		case a.First > b.First:
			return 1
		}
		return 0
	})
	return segments, whole, nil
}

type verifier struct {
	report  Report
	seq     uint64
	hash    Hash
	open    map[string]bool
	expect  *Hash
	found   bool
	removed map[string]bool // last hashes of files that the log says are removed
	// visit, if not nil, gets each line that is as it was written.
	visit func(Line)
}

// file checks one file. The error is a Problem, or one of reading.
func (v *verifier) file(s Segment) error {
	r, err := OpenReader(s.Path, s.Compressed)
	if err != nil {
		return err
	}
	defer r.Close()
	for number := 1; ; number++ {
		line, err := v.next(r, s, number)
		if errors.Is(err, io.EOF) {
			return v.ended(s, number)
		}
		if err != nil {
			return err
		}
		v.take(line)
	}
}

// next is the next line of a file, which is that number in it and follows on what was
// taken before. The error is io.EOF at the end of the file, a Problem, or one of reading.
func (v *verifier) next(r *Reader, s Segment, number int) (Line, error) {
	text, err := r.Next()
	problem := &Problem{File: s.Path, Line: number}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		return Line{}, io.EOF
	case errors.Is(err, errTorn):
		problem.Fault, problem.Detail = FaultTorn, "the file ends within it; a broker sets such a line aside when it starts"
		return Line{}, problem
	case s.Compressed:
		problem.Fault, problem.Detail = FaultChanged, "the file cannot be decompressed from here on: "+err.Error()
		return Line{}, problem
	default:
		return Line{}, err
	}
	line, err := ParseLine(text)
	if err != nil {
		problem.Fault, problem.Detail = FaultChanged, err.Error()
		return Line{}, problem
	}
	if problem.Fault, problem.Detail = v.place(line); problem.Fault != "" {
		return Line{}, problem
	}
	if number == 1 && s.First != 0 && line.Seq != s.First {
		problem.Fault, problem.Detail = FaultMisnamed, fmt.Sprintf("its first line is number %d", line.Seq)
		return Line{}, problem
	}
	return line, nil
}

// ended says whether a file may end before its line of that number. One without a line
// is what a broker leaves that has just begun it; if it ever had one, somebody took it.
func (v *verifier) ended(s Segment, number int) error {
	if number > 1 {
		return nil
	}
	newest, found, err := newestOf(filepath.Dir(s.Path))
	if err != nil || !found || newest.First != s.First {
		return err
	}
	return &Problem{File: s.Path, Line: number, Fault: FaultMissing, Detail: "the file is empty, and had lines"}
}

// place says what is wrong with the place of a line; nothing is for the first.
func (v *verifier) place(line Line) (Fault, string) {
	switch {
	case v.report.Lines == 0 && line.Seq == 1 && line.Prev != Hash{}:
		return FaultChanged, "it is the first of all and follows on another"
	case v.report.Lines == 0:
		return "", ""
	case line.Seq == v.seq+1 && line.Prev == v.hash:
		return "", ""
	case line.Seq > v.seq+1:
		return FaultMissing, fmt.Sprintf("it is number %d and comes after number %d: %d are not there", line.Seq, v.seq, line.Seq-v.seq-1)
	case line.Seq <= v.seq:
		return FaultReordered, fmt.Sprintf("it is number %d and comes after number %d", line.Seq, v.seq)
	default:
		return FaultChanged, fmt.Sprintf("it does not follow on number %d as that is here: one of the two was written anew", v.seq)
	}
}

func (v *verifier) take(line Line) {
	if v.visit != nil {
		v.visit(line)
	}
	if v.report.Lines == 0 {
		v.report.First = line.Seq
		if line.Seq > 1 {
			v.report.Before = line.Prev.String()
		}
		v.found = v.expect != nil && line.Seq > 1 && line.Prev == *v.expect
	}
	v.report.Lines++
	v.seq, v.hash = line.Seq, line.Hash
	if v.expect != nil && line.Hash == *v.expect {
		v.found = true
	}
	switch line.Event {
	case EventBegin:
		v.report.Effects++
		v.open[line.EffectID] = true
	case EventEnd:
		delete(v.open, line.EffectID)
	case EventFile:
		if v.report.Lines == 1 {
			for _, id := range line.Open {
				v.open[id] = true
			}
		}
	case EventNote:
		if line.Note == noteRetention {
			v.removed[line.LastHash] = true
		}
	}
}

func (v *verifier) finish() Report {
	r := &v.report
	r.Open, r.Last = len(v.open), v.seq
	if r.Lines > 0 {
		r.LastHash = v.hash.String()
	}
	r.Explained = r.Before != "" && v.removed[r.Before]
	r.OK = r.Problem == nil
	if v.expect != nil {
		r.Expected = &v.found
		r.OK = r.OK && v.found
	}
	return *r
}
