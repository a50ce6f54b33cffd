package instance

import (
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// After a loss of the journal a cloud may have instances that nobody knows of. Until it
// has listed them, and they are destroyed or count, it is asked for no others: a session
// could have two, and a tenant more than its quota.

// lossPatience bounds how long a session waits for clouds that it is not to be placed on.
const lossPatience = 5 * time.Minute

// loss is what has to be found out when the journal lacks something.
type loss struct {
	// noted is nil if it lacks nothing, else called once when that is over.
	noted func()
	// listed are the labels of the providers that have said what they have.
	listed map[string]bool
}

// awaitsLists returns why no instance can be made on a provider yet, for a session or
// without one. The caller holds mu.
func (s *Service) awaitsLists(target Provider, session string) error {
	if s.loss.noted == nil {
		return nil
	}
	for _, p := range s.catalog.Providers() {
		if p.Description().Ephemeral || s.loss.listed[p.Label()] {
			continue
		}
		if p.Label() != target.Label() && (session == "" || time.Since(s.started) > failpoint.Hasten(lossPatience)) {
			continue
		}
		e := sdk.Errorf(sdk.CodeUnavailable, "the broker has lost a part of its state, and provider %q has not said yet which instances it has", p.Label())
		e.RetryAfter, e.NoEffect = 5*time.Second, true
		return e
	}
	return nil
}

// hasListed is told that a provider was reconciled with a list that it was asked for at
// that time.
func (s *Service) hasListed(owner Provider, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loss.noted == nil || asked.Sub(s.started) < failpoint.Hasten(listDelay) {
		return
	}
	s.loss.listed[owner.Label()] = true
	for _, p := range s.catalog.Providers() {
		if !p.Description().Ephemeral && !s.loss.listed[p.Label()] {
			return
		}
	}
	over := s.loss.noted
	s.loss.noted = nil
	s.tasks.Go("end a loss", over)
}
