package audit

import (
	"errors"
	"io/fs"
	"os"
)

// choose makes sure that there is a file for lines of that day and size.
func (w *writer) choose(day string, size int64) error {
	most := w.log.detail.Load().MaxBytes
	switch {
	case w.file == nil:
	case !w.file.Present():
		if err := w.flush(); err != nil {
			return err
		}
		w.log.logger.Warn("a file of the audit log was removed or replaced; another begins", "file", w.path)
		w.abandon("the file before was removed or replaced")
	case w.written.size == 0: // it was made and nothing is in it
	case w.day != day:
		if err := w.leave("another day"); err != nil {
			return err
		}
	case most > 0 && w.written.size+size > most:
		if err := w.leave("the file before has its size"); err != nil {
			return err
		}
	}
	if w.file != nil {
		return nil
	}
	path := pathOf(w.log.options.Dir, day, w.written.seq+1)
	file, err := w.log.options.Open(path, true)
	if err != nil && w.clear(path, err) {
		file, err = w.log.options.Open(path, true)
	}
	if err != nil {
		return err
	}
	w.file, w.path, w.day = file, path, day
	signal(w.log.tidy)
	return nil
}

// leave ends a file that is full.
func (w *writer) leave(why string) error {
	if err := w.flush(); err != nil {
		return err
	}
	w.abandon(why)
	return nil
}

// clear removes what keeps a file from being made, and says whether that was all.
func (w *writer) clear(path string, err error) bool {
	switch {
	case errors.Is(err, fs.ErrNotExist): // the directory was removed
		return w.makeDir() == nil
	case errors.Is(err, fs.ErrExist): // there never was such a line, so nothing in it was promised
		return os.Rename(path, path+".torn-0") == nil
	default:
		return false
	}
}

func sizeOf(entries []*entry) int64 {
	size := int64(0)
	for _, e := range entries {
		size += int64(len(e.content)) + int64(len(seqKey)+len(prevKey)+hexHash+trailing)
	}
	return size
}

// makeDir makes the directory and locks it.
func (w *writer) makeDir() error {
	lock, err := lockDir(w.log.options.Dir)
	if err != nil {
		return err
	}
	if w.lock != nil {
		_ = w.lock.Close()
	}
	w.lock = lock
	return nil
}
