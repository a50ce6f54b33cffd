package instance

import (
	"context"
	"slices"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
)

// Journal remembers instances beyond the life of this process; package journal has
// one in the state file. What a method did is durable when it returns. Errors carry
// SB009.
type Journal interface {
	// Write keeps a record, in place of one with the same ID.
	Write(ctx context.Context, r Record) error
	// Amend changes a record; change may be called several times. Without such a
	// record it does nothing.
	Amend(ctx context.Context, id ID, change func(*Record)) error
	// End removes the records of instances that are no more, and remembers for a
	// while what their owners are told, if there is a reason.
	End(ctx context.Context, ended ...Ended) error
}

// Past is what a Journal knows from the processes before this one.
type Past struct {
	Records []Record
	Ended   []Ended
	// Incomplete, if not nil, says that records were lost. It is called once, when every
	// provider has said what it has, so that the loss can do no more harm.
	Incomplete func()
}

// noJournal remembers nothing.
type noJournal struct{}

func (noJournal) Write(context.Context, Record) error            { return nil }
func (noJournal) Amend(context.Context, ID, func(*Record)) error { return nil }
func (noJournal) End(context.Context, ...Ended) error            { return nil }

// recorder writes to the journal what it is to know of the registry's instances.
type recorder struct {
	*lifecycle
	journal Journal
	owed    *owed
}

// owed are ends that the journal is to be told of still. Until it has taken one, its
// record is what the next process would find: in the place of what the session has since,
// and counting beside what the quotas have granted since. So no intent is written before
// all are, which bounds them, and what the quotas count for them goes on to count.
type owed struct {
	writing chan struct{} // held by who writes them

	mu    sync.Mutex
	ends  []owedEnd
	later bool // somebody writes them in the background
}

type owedEnd struct {
	ended  Ended
	permit *quota.Instance
}

func newOwed() *owed { return &owed{writing: make(chan struct{}, 1)} }

func (o *owed) add(t Ended, permit *quota.Instance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ends = append(o.ends, owedEnd{t, permit})
}

func (o *owed) all() []owedEnd {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.ends)
}

// taken forgets the first ones, which the journal has.
func (o *owed) taken(ends []owedEnd) {
	o.mu.Lock()
	o.ends = slices.Clone(o.ends[len(ends):])
	o.mu.Unlock()
	for _, e := range ends {
		e.permit.Release()
	}
}

// begin reports whether there is something to be written in the background, which the
// caller does then.
func (o *owed) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.later || len(o.ends) == 0 {
		return false
	}
	o.later = true
	return true
}

// end reports whether the caller of begin is done: all is written, or that does not work.
func (o *owed) end(err error) (done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if done = err != nil || len(o.ends) == 0; done {
		o.later = false
	}
	return done
}

// settle writes the ends that are owed. Errors carry SB009, or are that of ctx.
func (r recorder) settle(ctx context.Context) error {
	if len(r.owed.all()) == 0 {
		return nil
	}
	select {
	case r.owed.writing <- struct{}{}:
		defer func() { <-r.owed.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ends := r.owed.all()
	if len(ends) == 0 {
		return nil
	}
	ended := make([]Ended, len(ends))
	for i, e := range ends {
		ended[i] = e.ended
	}
	if err := r.journal.End(ctx, ended...); err != nil {
		return err
	}
	r.owed.taken(ends)
	return nil
}

// settleFirst is settle before quotas are asked for an instance: what has ended counts until
// that is written down, and nobody is to be refused for it. Where it cannot be written down,
// the creation says so.
func (r recorder) settleFirst(ctx context.Context) { _ = r.settle(ctx) }

// settleLater is settle when nobody waits for it. After a failure the reaper and the next
// creation try again.
func (r recorder) settleLater() {
	if !r.owed.begin() {
		return
	}
	r.inBackground(func(ctx context.Context) error {
		for {
			if err := r.settle(ctx); r.owed.end(err) {
				return err
			}
		}
	})
}

// of returns the journal of an instance, or none for one that it does not keep.
func (r recorder) of(i registry.Instance) Journal {
	if i.Recorded() {
		return r.journal
	}
	return noJournal{}
}

// amend changes a record when nobody can be told that it does not work.
func (r recorder) amend(i registry.Instance, change func(*Record)) (done bool) {
	ctx, cancel := r.noting()
	defer cancel()
	err := r.of(i).Amend(ctx, i.ID, change)
	if err != nil {
		r.logger.Warn("what became of an instance could not be written down", "instance", i.ID.String(), "error", err)
	}
	return err == nil
}

// inBackground writes down what nobody waits for.
func (r recorder) inBackground(write func(context.Context) error) {
	r.tasks.Go("write to the journal", func() {
		ctx, cancel := r.noting()
		defer cancel()
		if err := write(ctx); err != nil {
			r.logger.Warn("the end of instances could not be written down", "error", err)
		}
	})
}

// markSuperseded writes down, before a session gets another instance, that those that it
// had are to end, which nobody has confirmed yet: the process after this one would take
// them for the session's, or one of them in the place of the other.
func (r recorder) markSuperseded(ctx context.Context, next *registry.Entry, claimed bool) error {
	if !claimed {
		return nil // a session of its own
	}
	for _, before := range next.Superseded() {
		if !before.Recorded() {
			continue
		}
		if err := r.journal.Amend(ctx, before.ID, func(r *Record) { r.Ending = true }); err != nil {
			return err
		}
	}
	return nil
}

// NoteUse implements registry.Effects.
func (r recorder) NoteUse(e *registry.Entry, written func(done bool)) {
	r.tasks.Go("note a use", func() {
		done := false
		defer func() { written(done) }()
		done = r.amend(e.Snapshot(), func(r *Record) { r.Used = true })
	})
}

// Ended implements registry.Effects.
func (r recorder) Ended(t Ended, permit *quota.Instance, unrecorded bool) {
	if !unrecorded {
		permit.Release()
		return
	}
	r.owe(t, permit)
}

// owe remembers an end at once, since the session's next creation may begin now, and has it
// written.
func (r recorder) owe(t Ended, permit *quota.Instance) {
	r.owed.add(t, permit)
	r.settleLater()
}
