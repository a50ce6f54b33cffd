// Package heads puts the ends of the audit logs of all brokers on a database in one order, and
// writes that order into each log.
//
// Each log is a chain of its own, which who may write its files can write anew, or cut off. A
// Signer gives the end of its broker's log a place in a chain of heads that the database keeps,
// and notes the heads of all in its own log. So each log says which lines the others had by then,
// and audit.VerifyTogether finds a log that has them no more.
package heads

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
)

// Store is the database.
type Store interface {
	// SignHead gives the end of this broker's log the next place in the order.
	SignHead(ctx context.Context, seq uint64, hash string) (audit.Head, error)
	// LastHead is the number of the last head of this broker. Where it has none yet it is one with
	// some of the others' behind it.
	LastHead(ctx context.Context) (uint64, error)
	// Heads are those behind a number in their order, at most so many.
	Heads(ctx context.Context, behind uint64, most int) ([]audit.Head, error)
}

const (
	// every is how often the end of the log is signed, where it has grown.
	every = 5 * time.Second
	// most heads are in a line.
	most = 100
	// timeout bounds one round.
	timeout = 10 * time.Second
)

// Options of a Signer.
type Options struct {
	Log    *audit.Log
	Store  Store
	Broker string // its ID
	Logger hclog.Logger
	// Every is how often it signs; 5 s unless given.
	Every time.Duration
}

// Signer signs the log of one broker. It is for one goroutine.
type Signer struct {
	Options
	// seen is the number of the last head that is noted in the log; known says that it is known.
	seen  uint64
	known bool
	// signed is the line that was signed last, and notes how many the signer has written since.
	signed, notes uint64
	away          bool
}

// New returns a Signer.
func New(o Options) *Signer {
	if o.Every == 0 {
		o.Every = every
	}
	return &Signer{Options: o}
}

// Run signs until ctx ends, and once more then.
func (s *Signer) Run(ctx context.Context) {
	look := time.NewTicker(s.Every)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			s.try(ctx)
		case <-ctx.Done():
			s.try(context.WithoutCancel(ctx))
			return
		}
	}
}

// try does one round. The order goes on where it was when the database is there again.
func (s *Signer) try(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := s.round(ctx)
	if err != nil && !s.away {
		s.Logger.Warn("the end of the audit log has no place in the order of all brokers; it is tried again", "error", err)
	}
	s.away = err != nil
}

func (s *Signer) round(ctx context.Context) (err error) {
	if !s.known {
		if s.seen, err = s.Store.LastHead(ctx); err != nil {
			return err
		}
		s.known = true
	}
	// What the signer itself has written is no reason to sign again.
	if seq, hash := s.Log.Position(); seq > s.signed+s.notes {
		if _, err := s.Store.SignHead(ctx, seq, hash); err != nil {
			return err
		}
		s.signed, s.notes = seq, 0
	}
	for {
		heads, err := s.Store.Heads(ctx, s.seen, most)
		if err != nil || len(heads) == 0 {
			return err
		}
		if err := s.Log.NoteHeads(ctx, s.Broker, heads); err != nil {
			return err
		}
		s.notes++
		s.seen = heads[len(heads)-1].Number
	}
}
