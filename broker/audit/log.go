package audit

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/disk"
)

// Options of a Log.
type Options struct {
	// Dir holds the files. It is made if need be and belongs to one log alone.
	Dir    string
	Detail Detail
	Logger hclog.Logger
	// Allowed says whether effects may begin at all, nil for always. Its errors have a code.
	Allowed func() error

	// The rest is for tests.

	// RetryEvery is how often a log that cannot be written is tried; 500 ms unless
	// given.
	RetryEvery time.Duration
	// Open opens files; OpenFile unless given.
	Open OpenFunc
	// Now is the clock; time.Now unless given.
	Now func() time.Time
}

// Detail is what may change while the log is written.
type Detail struct {
	// IncludeCode writes code itself, beside its sum.
	IncludeCode bool
	// MaxBytes is the size above which a file is followed by another; 0 for none.
	MaxBytes int64
	// KeepDays is how many days files are kept; 0 for ever.
	KeepDays int
	// Patience is how long a line may take; 30 s unless given. Who asks for it may
	// have less.
	Patience time.Duration
}

// Log is an audit log. All its methods may be called concurrently.
type Log struct {
	options Options
	logger  hclog.Logger
	detail  atomic.Pointer[Detail]
	tasks   *background.Group
	writer  *writer
	meter   *disk.Meter
	// wake has room for one: there is work, or it is time to stop.
	wake chan struct{}
	// tidy asks for housekeeping, in the same way.
	tidy    chan struct{}
	stopped chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	queue   []*entry
	closing bool
	ended   bool          // nobody writes any more
	failure error         // why nothing can be written, nil if it can
	busy    time.Time     // since when the disk has been waited for; zero if it is not
	grown   chan struct{} // closed, and made anew, when lines have become durable
	hash    Hash          // of the last line that is durable

	last      atomic.Uint64 // the last line that is durable
	lines     atomic.Uint64
	refused   atomic.Uint64
	late      atomic.Uint64
	recovered atomic.Uint64
}

// entry is a line that waits for its place.
type entry struct {
	event   Event
	id      string // of the effect
	content []byte
	done    chan error // has room for the one answer
	// state is pending until either side has decided.
	state atomic.Int32
}

// answer tells the caller, and says whether he was still there to be told.
func (e *entry) answer(err error) bool {
	if !e.state.CompareAndSwap(pending, durable) {
		return false
	}
	e.done <- err
	return true
}

const (
	pending   int32 = iota
	durable         // written; its caller goes on
	abandoned       // its caller has gone: nothing was done
)

// Open opens a log, or makes it. It puts in order what the last run left: a torn
// line is set aside and noted, and effects whose end nobody knows get one. The log
// must be closed.
func Open(o Options) (*Log, error) {
	o.RetryEvery = cmp.Or(o.RetryEvery, 500*time.Millisecond)
	if o.Open == nil {
		o.Open = OpenFile
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Log{
		options: o, logger: o.Logger, tasks: background.NewGroup(o.Logger),
		wake: make(chan struct{}, 1), tidy: make(chan struct{}, 1), stopped: make(chan struct{}), grown: make(chan struct{}),
	}
	l.Change(o.Detail)
	l.meter = disk.NewMeter(disk.Options{Of: "audit log", Logger: o.Logger, Bound: l.patience})
	w, err := l.start()
	if err != nil {
		return nil, err
	}
	l.writer = w
	go func() { // a panic here ends the broker: nothing may happen without a log
		defer close(l.stopped)
		l.write()
	}()
	l.tasks.Go("tidy the audit log", l.tidyUp)
	signal(l.tidy)
	return l, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is on its way
	}
}

// Change sets what may change, for lines that come from now on.
func (l *Log) Change(d Detail) {
	d.Patience = cmp.Or(d.Patience, 30*time.Second)
	l.detail.Store(&d)
}

func (l *Log) patience() time.Duration { return l.detail.Load().Patience }

// Disk measures how long the log waits for the disk.
func (l *Log) Disk() *disk.Meter { return l.meter }

func newEntry(c content, at time.Time) (*entry, error) {
	text, err := c.encode(at)
	return &entry{event: c.Event, id: c.EffectID, content: text, done: make(chan error, 1)}, err
}

var (
	errSlow   = errors.New("the disk takes too long")
	errClosed = errors.New("the log is closed")
)

// await hands a line to the writer and waits until it is durable.
func (l *Log) await(ctx context.Context, e *entry) error {
	if err := l.enqueue(e); err != nil {
		return err
	}
	patience := time.NewTimer(l.patience())
	defer patience.Stop()
	var gone error
	select {
	case err := <-e.done:
		return err
	case <-patience.C:
		gone = errSlow
	case <-ctx.Done():
		gone = errSlow
		if context.Cause(ctx) == context.Canceled { //nolint:errorlint // anything else is a deadline, or says why by itself
			gone = ctx.Err()
		}
	}
	if e.state.CompareAndSwap(pending, abandoned) {
		return gone
	}
	return <-e.done
}

// enqueue refuses at once what would only wait in vain. Ends are taken all the same:
// they are owed.
func (l *Log) enqueue(e *entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.event == EventBegin {
		if l.closing {
			return errClosed
		}
		if err := l.unwritable(); err != nil {
			return err
		}
	}
	if l.ended {
		return errClosed
	}
	l.queue = append(l.queue, e)
	signal(l.wake)
	return nil
}

// unwritable says why nothing can be written. The caller holds mu.
func (l *Log) unwritable() error {
	if l.failure == nil && !l.busy.IsZero() && time.Since(l.busy) > l.patience() {
		return errSlow
	}
	return l.failure
}

// Err says why nothing can be written at this moment, nil if it can. It is for
// operators.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unwritable()
}

// State counts what the log has done since it was opened.
type State struct {
	// Writable says whether effects may happen.
	Writable bool
	// Lines that were written, effects that were Refused, and those that were told
	// to be without their last line, which came Late.
	Lines, Refused, Late uint64
	// Recovered counts how often the log could be written again.
	Recovered uint64
	// Last is the number of the last line.
	Last uint64
}

// State returns the counts.
func (l *Log) State() State {
	return State{
		Writable: l.Err() == nil, Lines: l.lines.Load(), Refused: l.refused.Load(), Late: l.late.Load(),
		Recovered: l.recovered.Load(), Last: l.last.Load(),
	}
}

// Dir is where the files are.
func (l *Log) Dir() string { return l.options.Dir }

// Last returns the number of the last line that is on disk, and a channel that is
// closed when there are more.
func (l *Log) Last() (seq uint64, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.Load(), l.grown
}

// Position is the last line that is on disk, by its number and its hash.
func (l *Log) Position() (seq uint64, hash string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.Load(), l.hash.String()
}

// Close ends the log when all lines that were asked for are written, or could not
// be. When ctx ends before, files stay open, and the error says so.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	signal(l.wake)
	signal(l.tidy)
	select {
	case <-l.stopped:
	case <-ctx.Done():
		return errors.New("close the audit log: " + errSlow.Error())
	}
	l.tasks.Wait()
	return l.writer.close()
}
