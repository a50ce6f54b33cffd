package instance

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// errDisowned is what the calls of executions end with whose tenant was removed.
var errDisowned = errors.New("the tenant was removed during the execution")

// removed reports whether a request comes from a tenant that is one no more, be it that
// another has its name by now.
func (s *Service) removed(who tenant.Tenant) bool { return s.catalog.Offer(who).Removed }

func noSuchTenant() error {
	return sdk.Errorf(sdk.CodeNotAuthenticated, "the tenant was removed")
}

// Disown ends all that belongs to tenants which are none any more: nobody sees it from
// then on, so that who gets such a name gets nothing with it. Instances are destroyed in
// the background. known says which tenants there are; it is called with the catalog
// that Offer answers from.
func (s *Service) Disown(known func(tenant string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := 0
	for _, e := range s.entries {
		if known(e.id.Tenant) || e.disowned {
			continue
		}
		e.disowned = true
		ended++
		s.disown(e)
	}
	for id, r := range s.recovered {
		if known(r.ID.Tenant) || r.Ending {
			continue
		}
		r.Ending = true // it is destroyed when it is listed
		s.recovered[id] = r
		ended++
		s.noteInBackground(func(ctx context.Context) error {
			return s.journal.Amend(ctx, r.ID, func(r *Record) { r.Ending = true })
		})
	}
	s.graves.forget(func(e Ended) bool { return !known(e.ID.Tenant) })
	if ended > 0 {
		s.logger.Info("instances end with their tenants, which were removed", "count", ended)
	}
}

// disown ends an entry. One that is being made is destroyed when it is there, one of
// which nobody knows when it is found. The caller holds mu.
func (s *Service) disown(e *entry) {
	e.stopped = errDisowned.Error()
	for _, r := range s.running {
		if r.entry == e {
			r.stop(errDisowned)
		}
	}
	switch e.state {
	case live:
		s.hide(e)
		s.destroyLater(e)
	case creating, unsettled:
		if key := e.sessionKey(); s.sessions[key] == e {
			delete(s.sessions, key)
		}
		if e.state == creating {
			e.cancel()
		}
	case ending: // it is being destroyed already
	}
}

// forget drops what nobody may ask about any more.
func (g *graves) forget(of func(Ended) bool) {
	kept := g.order[:0:0]
	for _, e := range g.order {
		if of(e) {
			delete(g.byID, e.ID.String())
			continue
		}
		kept = append(kept, e)
	}
	g.order = kept
}
