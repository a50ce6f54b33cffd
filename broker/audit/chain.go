package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// checkTime is after which a check says how far it has come.
	checkTime = 2 * time.Second
	// checkAtLeast is what a check goes on for in any case, where it had to read again what
	// it had checked before: else it would never come to an end.
	checkAtLeast = 500 * time.Millisecond
	// maxLists is how often the files are listed again, where one was just removed for its age.
	maxLists = 3
)

// ChainState says whether the lines of a log are as they were written.
type ChainState string

// The states.
const (
	ChainWhole     ChainState = "whole"
	ChainBroken    ChainState = "broken"    // a line is not as it was written
	ChainUnchecked ChainState = "unchecked" // not all of it was checked yet
)

// Chain is what a check has found.
type Chain struct {
	State ChainState
	// Lines that were checked and are as they were written.
	Lines int
	// Checked is when that was.
	Checked time.Time
	// Detail says what is wrong, or how far the check has come.
	Detail string
}

// checkedFile is what is known of a file that was checked, as a whole or up to some line.
type checkedFile struct {
	as fingerprint
	// text sums up the checked part, which ends at size, without compression.
	text  hash.Hash
	size  int64
	lines int
	whole bool // to its end
	first Line // the first line
	seq   uint64
	last  Hash            // of the last line that was checked
	gone  map[string]bool // last hashes of files that it says were removed
}

// fingerprint is another one when a file was written to, or is another file.
type fingerprint struct {
	device, inode uint64
	size          int64
	modified      unix.Timespec
	changed       unix.Timespec
}

func fingerprintOf(path string) (f fingerprint, err error) {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return f, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return fingerprint{device: s.Dev, inode: s.Ino, size: s.Size, modified: s.Mtim, changed: s.Ctim}, nil //nolint:unconvert // other systems have other types
}

// errPaused ends a check whose time is over.
var errPaused = errors.New("the time of the check is over")

// Check checks the chain, as Verify does, up to the last line that is on disk now. It goes
// on where the last check ended: files that are as they were then are not read again, and
// of a file that has grown only the sum of what was checked is compared. After some seconds
// it says how far it has come. While somebody else checks, it tells what was found last.
// The error is that of ctx, or one of reading.
func (a *Archive) Check(ctx context.Context) (Chain, error) {
	if !a.checking.TryLock() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.last.State == "" {
			return Chain{State: ChainUnchecked, Checked: time.Now(), Detail: "it is being checked for the first time"}, nil
		}
		return a.last, nil
	}
	defer a.checking.Unlock()
	c, err := a.check(ctx)
	for range maxLists {
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
		c, err = a.check(ctx)
	}
	if err != nil {
		return Chain{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = c
	return c, nil
}

func (a *Archive) check(ctx context.Context) (Chain, error) {
	dir := a.log.Dir()
	until, _ := a.log.Last()
	segments, err := Segments(dir)
	if err != nil {
		return Chain{}, fmt.Errorf("check the audit log: %w", err)
	}
	a.forget(segments)
	w := &walk{archive: a, until: until, pause: within(ctx, a.checkTime), removed: map[string]bool{}}
	for i, s := range segments {
		if err = w.file(ctx, s, i == len(segments)-1); err != nil {
			break
		}
	}
	problem, isProblem := errors.AsType[*Problem](err)
	switch {
	case isProblem:
	case errors.Is(err, errPaused):
		return Chain{
			State: ChainUnchecked, Lines: w.lines, Checked: time.Now(),
			Detail: fmt.Sprintf("checked up to number %d of %d; ask again to go on", w.seq, until),
		}, nil
	case err != nil:
		return Chain{}, fmt.Errorf("check the audit log: %w", err)
	case w.before != "" && !w.removed[w.before]:
		problem = unexplained(segments[0], w.first)
	case w.seq < until:
		problem = &Problem{
			Fault: FaultMissing, File: dir, Line: 1,
			Detail: fmt.Sprintf("the log has written up to number %d, and the files end with number %d", until, w.seq),
		}
	default:
		problem = misnamed([]string{dir})
	}
	c := Chain{State: ChainWhole, Lines: w.lines, Checked: time.Now()}
	if problem != nil {
		c.State, c.Detail = ChainBroken, problem.Error()
	}
	return c, nil
}

// forget drops what is known of files that are not there any more.
func (a *Archive) forget(segments []Segment) {
	for first := range a.files {
		if !slices.ContainsFunc(segments, func(s Segment) bool { return s.First == first }) {
			delete(a.files, first)
		}
	}
}

// walk goes through the files of a log, in the order of their lines.
type walk struct {
	archive *Archive
	until   uint64
	pause   time.Time
	// progressed says that a file was read, so that the next check begins behind it.
	progressed bool

	lines   int
	first   uint64 // the number of the first line of all
	before  string // the hash before that
	seq     uint64
	hash    Hash
	removed map[string]bool
}

// file checks a file, or takes over what is known of it. The error is a Problem, errPaused,
// or that of ctx or of reading.
func (w *walk) file(ctx context.Context, s Segment, last bool) error {
	if last && w.lines > 0 && w.seq >= w.until {
		return nil // it has just been begun
	}
	as, err := fingerprintOf(s.Path)
	if errors.Is(err, os.ErrNotExist) && !s.Compressed { // it was compressed meanwhile
		s.Path, s.Compressed = s.Path+".gz", true
		as, err = fingerprintOf(s.Path)
	}
	if err != nil {
		return err
	}
	known := w.archive.files[s.First]
	if known != nil && known.as == as && (known.whole || last && known.seq >= w.until) {
		if known.lines == 0 {
			return nil
		}
		v := w.verifier()
		if fault, detail := v.place(known.first); fault != "" {
			return &Problem{Fault: fault, File: s.Path, Line: 1, Detail: detail}
		}
		w.take(known)
		return nil
	}
	if w.progressed && time.Now().After(w.pause) {
		return errPaused
	}
	f, err := w.read(ctx, s, as, known, last)
	w.progressed = true
	if f != nil {
		w.archive.files[s.First] = f
		w.take(f)
	} else {
		delete(w.archive.files, s.First)
	}
	return err
}

// verifier is one that has come to where the walk is.
func (w *walk) verifier() *verifier {
	v := &verifier{open: map[string]bool{}, removed: map[string]bool{}, seq: w.seq, hash: w.hash}
	v.report.Lines = w.lines
	return v
}

// take adds what was checked of a file.
func (w *walk) take(f *checkedFile) {
	if f.lines == 0 {
		return
	}
	if w.lines == 0 {
		if w.first = f.first.Seq; w.first > 1 {
			w.before = f.first.Prev.String()
		}
	}
	w.lines, w.seq, w.hash = w.lines+f.lines, f.seq, f.last
	for sum := range f.gone {
		w.removed[sum] = true
	}
}

// read checks a file from where it was checked before, if that is as it was.
func (w *walk) read(ctx context.Context, s Segment, as fingerprint, known *checkedFile, last bool) (*checkedFile, error) {
	r, err := OpenReader(s.Path, s.Compressed)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f := &checkedFile{as: as, text: sha256.New(), gone: map[string]bool{}}
	v, pause := w.verifier(), w.pause
	if known != nil && known.lines > 0 && same(ctx, r, as, known) {
		f = known
		f.as, f.whole = as, false
		if fault, detail := v.place(f.first); fault != "" {
			return nil, &Problem{Fault: fault, File: s.Path, Line: 1, Detail: detail}
		}
		v.seq, v.hash, v.report.Lines = f.seq, f.last, w.lines+f.lines
		pause = later(pause, time.Now().Add(checkAtLeast))
	} else if known != nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// What was checked of it is not what is there now: it is checked anew.
		_ = r.Close()
		if r, err = OpenReader(s.Path, s.Compressed); err != nil {
			return nil, err
		}
		defer r.Close()
	}
	for looked := 0; ; looked++ {
		if last && v.report.Lines > 0 && v.seq >= w.until {
			return f, nil // what comes then is not on disk yet
		}
		if looked%lookEvery == 0 && looked > 0 {
			if err := ctx.Err(); err != nil {
				return f, err
			}
			if time.Now().After(pause) {
				return f, errPaused
			}
		}
		line, err := v.next(r, s, f.lines+1)
		if errors.Is(err, io.EOF) {
			f.whole = true
			return f, v.ended(s, f.lines+1)
		}
		if err != nil {
			return f, err
		}
		v.take(line)
		f.add(line, r.Last())
		f.size = r.Offset()
	}
}

// add takes down a line that is as it was written.
func (f *checkedFile) add(line Line, text []byte) {
	if f.lines == 0 {
		f.first = line
		f.first.Open = nil
	}
	f.lines++
	f.seq, f.last = line.Seq, line.Hash
	if line.Event == EventNote && line.Note == noteRetention {
		f.gone[line.LastHash] = true
	}
	f.text.Write(text)
	f.text.Write([]byte{'\n'})
}

// same reports whether the part of a file that was checked is as it was then, and leaves
// the reader behind it. Errors of reading are those of who reads on.
func same(ctx context.Context, r *Reader, as fingerprint, known *checkedFile) bool {
	if known.as == as {
		return r.Skip(known.size) == nil
	}
	sum := sha256.New()
	for r.Offset() < known.size {
		text, err := r.Next()
		if err != nil || ctx.Err() != nil {
			return false
		}
		sum.Write(text)
		sum.Write([]byte{'\n'})
	}
	return r.Offset() == known.size && bytes.Equal(sum.Sum(nil), known.text.Sum(nil))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
