package audit

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// tidyUp compresses and removes old files until the log is closed: whenever a file
// begins, and at the start.
func (l *Log) tidyUp() {
	for range l.tidy {
		l.mu.Lock()
		closing := l.closing
		l.mu.Unlock()
		if closing {
			return
		}
		if err := l.tidyOnce(); err != nil {
			l.logger.Warn("old files of the audit log could not be put in order", "error", err)
		}
	}
}

func (l *Log) tidyOnce() error {
	segments, err := Segments(l.options.Dir)
	if err != nil {
		return err
	}
	if len(segments) == 0 {
		return nil
	}
	today := dayOf(l.options.Now())
	old := segments[:len(segments)-1] // the last one is being written
	if keep := l.detail.Load().KeepDays; keep > 0 {
		limit := dayOf(l.options.Now().Add(-time.Duration(keep) * 24 * time.Hour))
		for len(old) > 0 && old[0].Day < limit {
			if err := l.discard(old[0]); err != nil {
				return err
			}
			old = old[1:]
		}
	}
	for _, s := range old {
		if s.Compressed || s.Day == today {
			continue
		}
		if err := compress(s.Path); err != nil {
			return err
		}
	}
	return nil
}

// discard removes a file for good. The log says so first.
func (l *Log) discard(s Segment) error {
	found, err := scan(s)
	if err != nil {
		return err
	}
	said, err := newEntry(content{Event: EventNote, note: &note{
		Note: noteRetention, File: filepath.Base(s.Path), LastHash: found.hash.String(),
	}}, l.options.Now())
	if err != nil {
		return err
	}
	if err := l.await(context.Background(), said); err != nil {
		return err
	}
	l.logger.Info("a file of the audit log is removed for its age", "file", s.Path)
	return os.Remove(s.Path)
}

// noteRetention is what a line says of a file that was removed for its age.
const noteRetention = "a file is removed for its age"

// compress puts a file in the place of itself, compressed. A crash leaves both, or
// what the next attempt writes over.
func compress(path string) (err error) {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	part := path + ".gz.part"
	to, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part) // the next attempt writes over it
		}
	}()
	defer to.Close()
	zip := gzip.NewWriter(to)
	zip.ModTime = info.ModTime()
	if _, err := io.Copy(zip, from); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	if err := to.Sync(); err != nil {
		return err
	}
	if err := ondisk.Rename(part, path+".gz"); err != nil {
		return err
	}
	return os.Remove(path)
}
