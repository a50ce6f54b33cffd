package instance

import (
	"context"
	"maps"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/sdk"
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

// Record is what has to be known of an instance when this process is no more. It
// is written before the provider is asked for the instance, and again when the
// provider has made it. Of an instance that is made for one execution only the intent
// is written, and nothing if it ends with the process of its provider. It holds no
// secrets: what the creator put into the environment is not in it.
type Record struct {
	ID       ID                `json:"id"`
	Provider string            `json:"provider"` // by label
	Template string            `json:"template,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	TTL      time.Duration     `json:"ttl"`
	Idle     time.Duration     `json:"idle"`
	// Ephemeral says that it ends with the process of its provider, and so with that of
	// the broker.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Intended is when the provider was about to be asked.
	Intended time.Time `json:"intended"`
	// Claimed means that its owner can ask for it without knowing its ID.
	Claimed bool `json:"claimed,omitempty"`
	// OneShot means that it is made for one execution: nobody asks for it again.
	OneShot bool `json:"one_shot,omitempty"`
	// Routing is why it is on its provider.
	Routing Routing `json:"routing,omitzero"`

	// Made is the provider's own ID; empty as long as it has not answered. What
	// follows is not set before.
	Made     string            `json:"made,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  time.Time         `json:"created,omitzero"`
	Expires  time.Time         `json:"expires,omitzero"`
	Deadline time.Time         `json:"deadline,omitzero"`
	// Used means that it was used since: nobody knows until when, and so how far
	// its end was moved.
	Used   bool `json:"used,omitempty"`
	Paused bool `json:"paused,omitempty"`
	// Contexts are the provider's IDs of the default contexts, by language.
	Contexts map[string]string `json:"contexts,omitempty"`
	// Ending means that it was given up, and that its destruction did not work or that
	// its session got another one before it was confirmed.
	Ending bool `json:"ending,omitempty"`
}

// Ended is an instance that is no more.
type Ended struct {
	ID ID        `json:"id"`
	At time.Time `json:"at"`
	// Reason follows "ended at ...: ". Empty if there is nothing to be told.
	Reason string `json:"reason"`
}

// noJournal remembers nothing.
type noJournal struct{}

func (noJournal) Write(context.Context, Record) error            { return nil }
func (noJournal) Amend(context.Context, ID, func(*Record)) error { return nil }
func (noJournal) End(context.Context, ...Ended) error            { return nil }

// journalOf returns the journal of an entry. One that is made for one execution, by a
// process that takes it along when it ends, has none: nobody can ask for it after a
// crash. In a cloud it is there then, listed or not yet, and has to count.
func (s *Service) journalOf(e *entry) Journal {
	if e.recorded() {
		return s.journal
	}
	return noJournal{}
}

func (e *entry) recorded() bool { return !e.oneShot || !e.provider.Description().Ephemeral }

// record is what the journal keeps of an entry. The caller holds mu, or is the
// only one who has the entry.
func (e *entry) record() Record {
	r := Record{
		Ephemeral: e.provider.Description().Ephemeral,
		ID:        e.id, Provider: e.provider.Label(), Template: e.template, Labels: maps.Clone(e.labels),
		TTL: e.ttl, Idle: e.idle, Claimed: e.claimed, OneShot: e.oneShot,
		Intended: e.intended, Made: e.instance.ID, Routing: e.routing, Ending: e.forsaken,
	}
	if r.Made != "" {
		r.Metadata, r.Used, r.Paused, r.Contexts = maps.Clone(e.instance.Metadata), e.useNoted, e.paused, e.contexts
		r.Created, r.Expires, r.Deadline = e.created, e.expires, e.deadline
	}
	return r
}

// noteGivenUp writes down, before a session gets another instance, that those that it had
// are to end, which nobody has confirmed yet: the process after this one would take them
// for the session's, or one of them in the place of the other.
func (s *Service) noteGivenUp(ctx context.Context, next *entry) error {
	if !next.claimed {
		return nil // a session of its own
	}
	s.mu.Lock()
	var before []*entry
	for _, e := range s.entries {
		if (e.state == ending || e.forsaken) && e.recorded() && e.id.Tenant == next.id.Tenant && e.id.Session == next.id.Session {
			before = append(before, e)
		}
	}
	s.mu.Unlock()
	for _, e := range before {
		if err := s.journal.Amend(ctx, e.id, func(r *Record) { r.Ending = true }); err != nil {
			return err
		}
	}
	return nil
}

// noteMade begins the time of an instance that was made, and writes that down
// before anybody is told. unnoted says that the journal did not take it.
func (s *Service) noteMade(e *entry, made sdk.Instance) (unnoted bool, err error) {
	s.mu.Lock()
	if s.inUse(e.provider, made.ID) {
		s.mu.Unlock()
		return false, sdk.Errorf(sdk.CodeInternal, "provider %q gave out an instance that it had given out before", e.provider.Label())
	}
	e.announce()
	e.instance = made
	now := time.Now()
	e.begin(now, s.limits())
	record := e.record()
	s.mu.Unlock()
	if own := made.ExpiresAt; !own.IsZero() && !own.After(now) {
		return true, sdk.Errorf(sdk.CodeInternal, "provider %q made an instance that ended at %s, before it was there", e.provider.Label(), own.UTC().Format(time.RFC3339))
	}
	// Even if nobody waits any more: it may be there for long.
	ctx, cancel := s.noting()
	defer cancel()
	if !e.oneShot { // else its intent is known, which will do
		err = s.journalOf(e).Write(ctx, record)
	}
	failpoint.Hit(failpoint.CreateNoted)
	return err != nil, err
}

// noteUse writes down, once in an instance's life, that its end is moved by use
// from now on. It is done beside the use, and awaitNote waits for it. The caller
// holds mu.
func (s *Service) noteUse(e *entry) {
	if e.useNoted || e.oneShot {
		return
	}
	noted := make(chan struct{})
	e.useNoted, e.noting = true, noted
	s.tasks.Go("note a use", func() {
		defer close(noted)
		if !s.amend(e, func(r *Record) { r.Used = true }) {
			s.mu.Lock()
			defer s.mu.Unlock()
			e.useNoted = false // the next use tries again
		}
	})
}

// awaitNote waits until it is durable that the entry was used, before anybody is told
// how long it stays.
func (s *Service) awaitNote(e *entry) {
	s.mu.Lock()
	noting := e.noting
	s.mu.Unlock()
	if noting != nil {
		<-noting // it has a deadline
	}
}

// amend changes a record when nobody can be told that it does not work.
func (s *Service) amend(e *entry, change func(*Record)) (done bool) {
	ctx, cancel := s.noting()
	defer cancel()
	err := s.journalOf(e).Amend(ctx, e.id, change)
	if err != nil {
		s.logger.Warn("what became of an instance could not be written down", "instance", e.id.String(), "error", err)
	}
	return err == nil
}
