package audit

import (
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// round is one wait for the disk. Lines that come meanwhile are written behind it and
// wait for the next one: an end is never held up by the disk's confirmation of others.
type round struct {
	upTo    place
	entries []*entry
	notes   []note
	began   time.Time
	done    chan error // has room for the one answer
}

// errTakenBack answers lines that a failure took out of the file again.
var errTakenBack = errors.New("it was taken back after a failure")

// beginRound begins to make durable what is written.
func (w *writer) beginRound() {
	r := &round{upTo: w.written, entries: w.unsynced, notes: w.said, began: time.Now(), done: make(chan error, 1)}
	w.round, w.unsynced, w.said, w.urgent = r, nil, nil, false
	file, fresh, dir, path := w.file, w.durable.size == 0, w.log.options.Dir, w.path
	go func() { // endRound waits for it
		r.done <- w.timed(func() error {
			failpoint.Hit(failpoint.AuditSync)
			err := file.Sync()
			if err == nil && fresh {
				err = ondisk.SyncDir(dir)
			}
			if err == nil && fresh {
				if unmarked := markNewest(dir, path); unmarked != nil {
					w.log.logger.Warn("it could not be written down which file of the audit log is the newest", "file", path, "error", unmarked)
				}
			}
			return err
		})
	}()
}

// synced is readable when the round has ended.
func (w *writer) synced() <-chan error {
	if w.round == nil {
		return nil
	}
	return w.round.done
}

// endRound takes down how the round has ended, and answers who waits for it.
func (w *writer) endRound(err error) error {
	r := w.round
	w.round = nil
	if err != nil {
		w.dirty = true
		w.unsynced, w.said = append(r.entries, w.unsynced...), append(r.notes, w.said...)
		w.refuseBegins(err)
		return err
	}
	w.log.lines.Add(r.upTo.seq - w.durable.seq)
	w.durable, w.why = r.upTo, ""
	w.log.grow(w.durable)
	failpoint.Hit(failpoint.AuditWritten)
	for _, e := range r.entries {
		switch {
		case e.event == EventEnd: // it was answered when it was written
		case e.event == EventBegin && !e.answer(nil):
			w.open[e.id] = true
			w.takeBack(e.id)
		case e.event == EventBegin:
			w.open[e.id] = true
		default:
			e.answer(nil)
		}
	}
	return nil
}

// refuseBegins answers the lines that the disk did not confirm. Ends stay: they have
// been answered, and are owed.
func (w *writer) refuseBegins(err error) {
	ends := w.unsynced[:0:0]
	for _, e := range w.unsynced {
		if e.event == EventEnd {
			ends = append(ends, e)
		} else {
			e.answer(err)
		}
	}
	w.unsynced, w.urgent = ends, false
}

// settle waits for the round that is under way.
func (w *writer) settle() error {
	if w.round == nil {
		return nil
	}
	return w.endRound(<-w.round.done)
}

// flush waits until everything that is written is durable.
func (w *writer) flush() error {
	for {
		if err := w.settle(); err != nil {
			return err
		}
		if w.written == w.durable {
			return nil
		}
		w.beginRound()
	}
}

// timed has the meter watch a call that may wait for the disk.
func (w *writer) timed(call func() error) error {
	defer w.log.meter.Begin()()
	return call()
}
