package audit

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
)

// syncDelay is how long an end may be written and not on disk. A beginning waits for
// the disk, since its effect must not happen without it, and takes along the ends that
// were written before.
const syncDelay = 100 * time.Millisecond

// place is where the chain ends: the size of the file, and the last line.
type place struct {
	size int64
	seq  uint64
	hash Hash
}

// writer is what only the writing goroutine touches.
type writer struct {
	log  *Log
	lock *os.File

	file File // nil if the next line begins one
	path string
	day  string
	// written is the end of the chain, and durable as much of it as is on disk for
	// certain. Between them are the lines of the round and, behind those, of unsynced.
	written, durable place
	round            *round // nil while nothing is being made durable
	unsynced         []*entry
	// urgent says that somebody waits for unsynced lines to be on disk.
	urgent bool
	// dirty says that nobody knows what the file has behind durable.
	dirty bool
	// open are the effects that have begun and not ended.
	open map[string]bool
	// owed are ends that could not be written, noted what the log is to say about
	// itself, and said what of that is among the unsynced.
	owed        []*entry
	noted, said []note
	why         string // the next file begins, if it is not the day or the size
	buf         []byte
}

// write takes lines down until the log is closed.
func (l *Log) write() {
	w := l.writer
	ticker := time.NewTicker(l.options.RetryEvery)
	defer ticker.Stop()
	var due <-chan time.Time // when what is unsynced has to be on disk
	for {
		var failed error
		retry := false
		select {
		case <-l.wake:
		case <-ticker.C:
			retry = true
		case <-due:
			due, w.urgent = nil, true
		case err := <-w.synced():
			failed = w.endRound(err)
		}
		entries, closing, before := l.take()
		if before != nil {
			failed = before
		}
		if closing {
			w.noted = append(w.noted, note{Note: "the broker stops"})
		}
		switch {
		case failed != nil && (before == nil || !retry) && !closing:
			w.refuse(entries, failed)
		case failed != nil:
			w.refuse(entries, failed)
			failed = w.recover(failed)
		case len(entries) > 0 || len(w.noted) > 0:
			if failed = w.commit(entries); failed != nil {
				w.refuse(entries, failed)
			}
		}
		if closing && failed == nil {
			failed = w.finish()
		}
		if failed != nil && before == nil {
			l.logger.Error("the audit log cannot be written; nothing is done until it can", "file", w.path, "error", failed)
		}
		if w.urgent && w.round == nil && !w.dirty && w.written != w.durable {
			w.beginRound()
		}
		l.idle(failed, w.round)
		if closing {
			w.refuse(l.end(), errClosed)
			return
		}
		if due == nil && len(w.unsynced) > 0 {
			due = time.After(syncDelay)
		}
	}
}

// finish makes everything durable, with the ends of lines whose callers went meanwhile.
func (w *writer) finish() error {
	for {
		if err := w.flush(); err != nil {
			return err
		}
		entries, _, _ := w.log.take()
		if len(entries) == 0 {
			return nil
		}
		if err := w.commit(entries); err != nil {
			w.refuse(entries, err)
			return err
		}
	}
}

// take returns what waits.
func (l *Log) take() (entries []*entry, closing bool, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, l.queue = l.queue, nil
	if l.busy.IsZero() {
		l.busy = time.Now()
	}
	return entries, l.closing, l.failure
}

// idle says since when the disk has been waited for, and how the last attempt went.
func (l *Log) idle(failed error, waiting *round) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy, l.failure = time.Time{}, failed
	if waiting != nil {
		l.busy = waiting.began
	}
}

// grow says that there are more lines, before anybody is told of his own.
func (l *Log) grow(last place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.Store(last.seq)
	l.hash = last.hash
	close(l.grown)
	l.grown = make(chan struct{})
}

// end returns what came too late.
func (l *Log) end() []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	return l.queue
}

// refuse answers lines that were not written. Ends are kept.
func (w *writer) refuse(entries []*entry, err error) {
	for _, e := range entries {
		if e.event == EventEnd {
			w.owed = append(w.owed, late(e))
		}
		e.answer(err)
	}
}

// late marks an end whose effect was told to be without it.
func late(e *entry) *entry {
	text := append(e.content[:len(e.content)-1:len(e.content)-1], `,"late":true}`...)
	return &entry{event: EventEnd, id: e.id, content: text, done: make(chan error, 1)}
}

// recover tries to go on after a failure, and writes what is owed.
func (w *writer) recover(failed error) error {
	if err := w.repair(); err != nil {
		return err
	}
	owed := w.owed
	w.noted = append(w.noted, note{Note: fmt.Sprintf("the log could not be written: %v; it can again", rootOf(failed))})
	w.owed = nil
	if err := w.commit(owed); err != nil {
		w.owed = append(owed, w.owed...)
		w.noted = w.noted[:len(w.noted)-1]
		return err
	}
	if err := w.flush(); err != nil {
		// What is owed is among the lines that repair takes back.
		w.said = w.said[:len(w.said)-1]
		return err
	}
	w.log.recovered.Add(1)
	w.log.logger.Info("the audit log can be written again", "late", len(owed))
	return nil
}

// rootOf is the system's word on an error, without the path.
func rootOf(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}

// repair takes back what is not on disk for certain: of a write or a sync that failed
// nobody knows how much of it is. Ends among it are owed.
func (w *writer) repair() error {
	if err := w.settle(); err != nil {
		return err
	}
	if w.file == nil || !w.dirty {
		return nil
	}
	present := w.file.Present()
	if present {
		if err := w.file.Truncate(w.durable.size); err != nil {
			return fmt.Errorf("take back what was not written to the end: %w", err)
		}
		if err := w.timed(w.file.Sync); err != nil {
			return err
		}
	}
	w.takeBackUnsynced(errTakenBack)
	w.written = w.durable
	switch {
	case !present:
		w.abandon("the file before was removed or replaced")
	case w.written.size == 0: // it never began
		w.abandon(w.why)
		return os.Remove(w.path)
	}
	w.dirty = false
	return nil
}

// takeBackUnsynced has the ends of lines that come out of the file again written later,
// and answers the others.
func (w *writer) takeBackUnsynced(err error) {
	var owed []*entry
	for _, e := range w.unsynced {
		if e.event == EventEnd {
			w.open[e.id] = true
			owed = append(owed, e)
		}
		e.answer(err)
	}
	w.owed, w.noted = append(owed, w.owed...), append(w.said, w.noted...)
	w.unsynced, w.said, w.urgent = nil, nil, false
}

// abandon leaves a file as it is. The next line begins another.
func (w *writer) abandon(why string) {
	_ = w.file.Close() // what is in it was synced, or went with it, or never was promised
	w.written.size = 0
	w.file, w.dirty, w.why, w.durable = nil, false, why, w.written
	w.unsynced, w.said, w.urgent = nil, nil, false
}

// commit writes lines, all or none. Ends are answered then, and others when the round
// after it has made them durable. After an error repair comes first.
func (w *writer) commit(entries []*entry) error {
	if w.dirty {
		if err := w.repair(); err != nil {
			return err
		}
	}
	now := w.log.options.Now()
	if err := w.choose(dayOf(now), sizeOf(entries)); err != nil {
		return err
	}
	seq, hash := w.written.seq, w.written.hash
	w.buf = w.buf[:0]
	add := func(content []byte) {
		seq++
		w.buf, hash = seal(w.buf, seq, hash, content)
	}
	urgent := w.written.size == 0 || len(w.noted) > 0
	if w.written.size == 0 {
		header, err := content{Event: EventFile, note: &note{Note: w.why, Open: slices.Sorted(maps.Keys(w.open))}}.encode(now)
		if err != nil {
			return err
		}
		add(header)
	}
	for i := range w.noted {
		text, err := content{Event: EventNote, note: &w.noted[i]}.encode(now)
		if err != nil {
			return err
		}
		add(text)
	}
	written := entries[:0:0]
	for _, e := range entries {
		if e.event == EventBegin && e.state.Load() == abandoned {
			continue // nobody waits, and nothing will happen
		}
		add(e.content)
		written = append(written, e)
		urgent = urgent || e.event != EventEnd
	}
	if len(w.buf) > 0 {
		failpoint.Hit(failpoint.AuditWrite)
		if err := w.timed(func() error { _, err := w.file.Write(w.buf); return err }); err != nil {
			// What was written before stays: a crash must not lose what somebody was told.
			w.dirty = w.written.size == 0 || w.file.Truncate(w.written.size) != nil
			return err
		}
		w.written = place{w.written.size + int64(len(w.buf)), seq, hash}
	}
	w.said, w.noted = append(w.said, w.noted...), nil
	w.unsynced = append(w.unsynced, written...)
	w.urgent = w.urgent || urgent
	for _, e := range written {
		if e.event == EventEnd {
			delete(w.open, e.id)
			e.answer(nil)
		}
	}
	const mostKept = 1 << 20
	if cap(w.buf) > mostKept {
		w.buf = nil
	}
	return nil
}

// takeBack ends an effect whose line came after its caller had gone.
func (w *writer) takeBack(id string) {
	end, err := newEntry(content{Event: EventEnd, EffectID: id, Outcome: &Outcome{Status: StatusNotBegun}}, w.log.options.Now())
	if err == nil {
		err = w.log.enqueue(end)
	}
	if err != nil {
		w.log.logger.Error("a line of the audit log without an effect has no end", "effect", id, "error", err)
	}
}

// close closes what is open.
func (w *writer) close() error {
	var err error
	if w.file != nil {
		err = w.file.Close()
	}
	return errors.Join(err, w.lock.Close())
}
