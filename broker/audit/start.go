package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// lockName is the file whose lock says that a log is being written.
const lockName = "lock"

// lockDir makes a directory for its owner alone and locks it: two writers would
// break each other's chain.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be entered by others (mode %#o); audit logs are for their owner alone: chmod 700", dir, info.Mode().Perm())
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another broker writes its audit log to %s; give this one a directory of its own (audit { dir = ... })", dir)
		}
		return nil, fmt.Errorf("lock the audit log: %w", err)
	}
	return lock, nil
}

// start puts in order what the last run left, and returns the writer that goes on
// from there.
func (l *Log) start() (_ *writer, err error) {
	w := &writer{log: l, open: map[string]bool{}, why: "the log begins"}
	if w.lock, err = lockDir(l.options.Dir); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("audit log: %w", err), w.close())
		}
	}()
	segments, err := Segments(l.options.Dir)
	if err != nil {
		return nil, err
	}
	if err := w.resume(segments); err != nil {
		return nil, err
	}
	w.durable = w.written
	w.noted = append(w.noted, note{Note: "the broker starts"})
	var ends []*entry
	for _, id := range slices.Sorted(maps.Keys(w.open)) {
		end, err := newEntry(content{Event: EventEnd, EffectID: id, Outcome: &Outcome{
			Status: StatusUnknown, Detail: "the broker ended before it knew",
		}}, l.options.Now())
		if err != nil {
			return nil, err
		}
		ends = append(ends, end)
	}
	if err := errors.Join(w.commit(ends), w.flush()); err != nil {
		return nil, err
	}
	if len(ends) > 0 {
		l.logger.Warn("effects of the last run have no known outcome", "count", len(ends))
	}
	return w, nil
}

// resume finds the end of the chain in the newest file that has a line.
func (w *writer) resume(segments []Segment) error {
	newest, marked, err := newestOf(w.log.options.Dir)
	if err != nil {
		return err
	}
	gone := marked && (len(segments) == 0 || segments[len(segments)-1].First < newest.First)
	if gone {
		w.log.logger.Error("the newest file of the audit log was removed; another begins", "file", newest.Path)
		w.why = "the newest file was removed: " + filepath.Base(newest.Path)
	}
	for len(segments) > 0 {
		last := segments[len(segments)-1]
		segments = segments[:len(segments)-1]
		found, err := scan(last)
		if err != nil {
			return err
		}
		if found.lines == 0 && found.problem == nil {
			// Its number is taken: what comes next has another.
			if found.problem = emptied(last, marked && last.First == newest.First); found.problem != nil {
				found.highest = max(found.highest, last.First)
			}
		}
		if found.tail > 0 && found.problem == nil {
			if err := w.setAside(last, found); err != nil {
				return err
			}
		}
		if found.lines == 0 && found.problem == nil { // a crash came before its first line was whole
			if err := os.Remove(last.Path); err != nil {
				return err
			}
			continue
		}
		w.written.seq, w.written.hash, w.open = max(found.seq, last.First-1), found.hash, found.open
		if found.problem != nil {
			w.log.logger.Error("a file of the audit log was changed; another begins", "file", last.Path, "line", found.lines+1, "error", found.problem)
			w.why = fmt.Sprintf("the file before was changed: line %d: %v", found.lines+1, found.problem)
			w.written.seq = max(w.written.seq, found.highest)
			return nil //nolint:nilerr // the next file says it
		}
		if gone {
			w.written.seq = max(w.written.seq, newest.First)
			return nil
		}
		if last.Compressed {
			w.why = "the file before is compressed"
			return nil
		}
		file, err := w.log.options.Open(last.Path, false)
		if err != nil {
			return err
		}
		w.file, w.path, w.day, w.written.size, w.why = file, last.Path, last.Day, found.size, ""
		return nil
	}
	if gone {
		w.written.seq = newest.First
	}
	return nil
}

// scanned is what was found in a file.
type scanned struct {
	lines int // good ones
	seq   uint64
	hash  Hash
	open  map[string]bool
	size  int64 // of the good lines, in bytes
	// tail is how many bytes come after them. problem, if not nil, is why they are
	// not what a crash leaves; highest is the largest number among them.
	tail    int64
	problem error
	highest uint64
}

// scan reads a file up to the first line that does not fit.
func scan(s Segment) (found scanned, err error) {
	found.open = map[string]bool{}
	r, err := OpenReader(s.Path, s.Compressed)
	if err != nil {
		return found, err
	}
	defer r.Close()
	for {
		text, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil && !errors.Is(err, errTorn) {
			return found, err
		}
		line, bad := Line{}, err
		if bad == nil {
			line, bad = ParseLine(text)
		}
		if unlike := unlikeCrash(text, bad); unlike != nil {
			found.problem, found.highest = unlike.problem, unlike.seq
		}
		if bad == nil && (found.lines == 0 && line.Seq != s.First || found.lines > 0 && (line.Seq != found.seq+1 || line.Prev != found.hash)) {
			bad = errors.New("the line does not follow on the one before")
			found.problem, found.highest = bad, line.Seq
		}
		if bad != nil {
			return found.rest(s, r, bad)
		}
		found.take(line)
		found.size = r.offset
	}
}

// altered is a line that no crash leaves.
type altered struct {
	problem error
	seq     uint64
}

// unlikeCrash recognizes a whole line that somebody's editor wrote, with another end.
func unlikeCrash(text []byte, bad error) *altered {
	if bad == nil {
		return nil
	}
	line, err := ParseLine(bytes.TrimSuffix(text, []byte("\r")))
	if err != nil {
		return nil
	}
	return &altered{errors.New("the line has another end than the log gives it"), line.Seq}
}

func (f *scanned) take(line Line) {
	f.lines++
	f.seq, f.hash = line.Seq, line.Hash
	switch line.Event {
	case EventFile:
		for _, id := range line.Open {
			f.open[id] = true
		}
	case EventBegin:
		f.open[line.EffectID] = true
	case EventEnd:
		delete(f.open, line.EffectID)
	}
}

// rest looks at what follows a line that does not fit. A crash leaves no whole line
// behind a torn one; somebody who changes lines does.
func (f scanned) rest(s Segment, r *Reader, bad error) (scanned, error) {
	info, err := os.Stat(s.Path)
	if err != nil {
		return f, err
	}
	f.tail = info.Size() - f.size
	for {
		text, err := r.Next()
		if errors.Is(err, errTorn) || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return f, err
		}
		if line, err := ParseLine(bytes.TrimSuffix(text, []byte("\r"))); err == nil {
			f.problem, f.highest = bad, max(f.highest, line.Seq)
		}
	}
	if s.Compressed && f.problem == nil {
		f.problem = bad // it was whole when it was compressed
	}
	return f, nil
}

// setAside moves what a crash left behind the last whole line into a file of its
// own, and has it noted.
func (w *writer) setAside(s Segment, found scanned) error {
	file, err := os.OpenFile(s.Path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	torn := make([]byte, found.tail)
	if _, err := file.ReadAt(torn, found.size); err != nil {
		return err
	}
	aside := fmt.Sprintf("%s.torn-%d", s.Path, found.size)
	if err := writeNew(aside, torn); err != nil {
		return err
	}
	if err := file.Truncate(found.size); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	sum := sha256.Sum256(torn)
	w.noted = append(w.noted, note{
		Note: "a line was torn by a crash and is set aside", File: filepath.Base(aside), Size: found.tail, SHA256: hex.EncodeToString(sum[:]),
	})
	w.log.logger.Warn("a line of the audit log was torn by a crash; it is set aside", "file", aside, "bytes", found.tail)
	return nil
}

// writeNew writes a file for its owner alone, over one that an attempt before has
// left.
func writeNew(path string, text []byte) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(text); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return ondisk.SyncDir(filepath.Dir(path))
}
