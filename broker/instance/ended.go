package instance

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds of what is remembered of instances that are no more.
const (
	EndedLife = 24 * time.Hour
	MaxEnded  = 10_000
)

// The reasons why an instance ended without its owner's doing.
const (
	reasonRestart = "the broker was restarted"
	reasonStop    = "the broker was stopped"
	reasonExpired = "its time was over"
	reasonProcess = "the process of its provider ended"
	reasonLost    = "its provider does not have it any more"
	reasonRemoved = "its provider was removed"
	reasonKilled  = "an administrator destroyed it"
)

// graves are the instances that ended and whose owners may ask why.
type graves struct {
	byID  map[string]Ended
	order []Ended // the oldest first
}

func (g *graves) add(ended Ended) {
	if g.byID == nil {
		g.byID = map[string]Ended{}
	}
	g.byID[ended.ID.String()] = ended
	g.order = append(g.order, ended)
	for len(g.order) > MaxEnded || time.Since(g.order[0].At) > EndedLife {
		delete(g.byID, g.order[0].ID.String())
		g.order = g.order[1:]
		if len(g.order) == 0 {
			return
		}
	}
}

// absent is the error for an instance that the tenant cannot use. Only the owner
// learns more than about one that never was. The caller holds mu.
func (s *Service) absent(who tenant.Tenant, id string) error {
	if r, found := s.recovered[id]; found && r.ID.Tenant == who.Name && r.adoptable() {
		return stillUnknown(r)
	}
	ended, found := s.graves.byID[id]
	if e := s.entries[id]; e != nil && e.state == ending {
		ended = e.epitaph() // it is being destroyed
		found = ended.Reason != ""
	}
	if found && ended.ID.Tenant == who.Name && time.Since(ended.At) <= EndedLife {
		return sdk.Errorf(sdk.CodeNotFound, "the instance ended at %s: %s; create a new one if you need one",
			ended.At.UTC().Format(time.RFC3339), ended.Reason)
	}
	return noSuchInstance()
}

// lose forgets an entry that is no more, with the reason for its owner. The caller
// holds mu.
func (s *Service) lose(e *entry, reason string) {
	s.hide(e)
	e.reason = reason
	s.forget(e)
}

// epitaph is what is remembered of an entry.
func (e *entry) epitaph() Ended {
	ended := Ended{ID: e.id, At: time.Now(), Reason: e.reason}
	if e.oneShot || e.disowned {
		ended.Reason = "" // nobody ever knew of it, or used it again, or may any more
	}
	return ended
}

// bury remembers what ended, in the journal too, in the background. What the
// journal does not take there is found out anew after a restart. The caller holds
// mu.
func (s *Service) bury(ended ...Ended) {
	for _, e := range ended {
		if e.Reason != "" {
			s.graves.add(e)
		}
	}
	s.noteInBackground(func(ctx context.Context) error { return s.journal.End(ctx, ended...) })
}

// noteInBackground writes down the end of instances, which nobody waits for.
func (s *Service) noteInBackground(write func(context.Context) error) {
	s.tasks.Go("bury", func() {
		ctx, cancel := s.noting()
		defer cancel()
		if err := write(ctx); err != nil {
			s.logger.Warn("the end of instances could not be written down", "error", err)
		}
	})
}
