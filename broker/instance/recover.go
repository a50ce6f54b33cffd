package instance

import (
	"context"
	"maps"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// listDelay is how long a list may lack an instance that there is: the services of
// clouds show what was made only after some seconds.
const listDelay = time.Minute

// What an earlier process left stays in Service.recovered until the provider has
// said what became of it: adopted as an entry, destroyed, or gone.

// recover takes over what the journal knows.
func (s *Service) recover(past Past) {
	for _, r := range past.Records {
		s.recovered[r.ID.String()] = r
		s.counted[r.ID.String()] = s.quotas.Adopt(r.ID.Tenant, r.Provider)
	}
	for _, ended := range past.Ended {
		s.graves.add(ended)
	}
}

// resolved ends the waiting for a record, and returns what the quotas count for its
// instance. The caller holds mu.
func (s *Service) resolved(r Record) *quota.Instance {
	id := r.ID.String()
	counted := s.counted[id]
	delete(s.recovered, id)
	delete(s.counted, id)
	return counted
}

// adoptable reports whether somebody may still ask for the instance. One that was
// never acknowledged is found only by its session or by its creator's key.
func (r Record) adoptable() bool {
	return !r.Ending && !r.OneShot && (r.Made != "" || r.Claimed)
}

// since is when a list must have had what an earlier process left at the latest, but
// for its delay. A creation that was not acknowledged may have gone on until that
// process died.
func (s *Service) since(r Record) time.Time {
	if r.Made != "" {
		return r.Created
	}
	return s.started
}

// stillUnknown is the answer as long as nobody knows what became of the instance.
func stillUnknown(r Record) error {
	e := sdk.Errorf(sdk.CodeUnavailable, "the broker was restarted, and provider %q has not said yet whether it still has the instance", r.Provider)
	e.RetryAfter = time.Second
	return e
}

// awaited returns the record of an earlier process for a session whose instance may
// still be there. The caller holds mu.
func (s *Service) awaited(key sessionKey) (Record, bool) {
	for _, r := range s.recovered {
		if r.ID.Tenant == key.tenant && r.ID.Session == key.session && r.Provider == key.provider && (r.adoptable() || r.OneShot && r.Claimed && !r.Ending) {
			return r, true
		}
	}
	return Record{}, false
}

// resumeCreation asks the provider once more for what an earlier process intended for
// the session: the same creation gives the same instance, whether there is one already
// or not. It returns nil if there is no such record, and an error when there is an
// instance, which is only not listed yet. The caller holds mu.
func (s *Service) resumeCreation(ctx context.Context, key sessionKey, t target, req CreateRequest) (*entry, error) {
	r, found := s.awaited(key)
	if !found {
		return nil, nil
	}
	if r.Made != "" || r.OneShot {
		return nil, stillUnknown(r)
	}
	if err := (&entry{template: r.Template, ttl: r.TTL, idle: r.Idle}).conflict(req); err != nil {
		return nil, err
	}
	req.granted = s.resolved(r) // it counts already
	req.way.resumed = true
	t.template, req.TTL, req.Idle, req.Labels = r.Template, r.TTL, r.Idle, r.Labels
	return s.startCreation(ctx, r.ID, t, req), nil
}

// adopt makes an entry of a record. An expiry that was due meanwhile is the reaper's.
// The caller holds mu.
func (s *Service) adopt(r Record, owner Provider, listed sdk.Instance) *entry {
	now := time.Now()
	e := &entry{
		id: r.ID, provider: owner, template: r.Template, ttl: r.TTL, idle: r.Idle, labels: r.Labels,
		claimed: r.Claimed, intended: r.Intended, useNoted: r.Used, paused: r.Paused,
		ready: make(chan struct{}), cancel: func() {}, installing: make(chan struct{}, 1), makingContext: make(chan struct{}, 1), contexts: r.Contexts,
		state: live, instance: listed, permit: s.resolved(r), routing: r.Routing,
	}
	close(e.ready)
	if r.Made == "" {
		e.begin(r.Intended, s.limits())
	} else {
		e.instance.Metadata = maps.Clone(r.Metadata)
		e.created, e.lastUsed, e.expires, e.deadline = r.Created, r.Created, r.Expires, r.Deadline
	}
	if r.Used { // at the latest when the process before this one ended
		e.use(now)
	}
	s.entries[e.id.String()] = e
	s.sessions[e.sessionKey()] = e
	return e
}

// settle finds out what became of the records of an earlier process, from a list of
// their provider by instance parts. What is adopted or kept waiting leaves the list. That
// something is gone is only taken from a provider that serves.
// The caller holds mu.
func (s *Service) settle(owner Provider, listed map[string][]sdk.Instance) (adopted []*entry) {
	now, serves := time.Now(), s.serves(owner)
	var gone []Ended
	for _, r := range s.recovered {
		if r.Provider != owner.Label() {
			continue
		}
		found := listed[r.ID.Instance]
		i := pickInstance(r, found)
		switch {
		case i >= 0 && r.adoptable() && s.sessions[sessionKey{r.ID.Tenant, r.ID.Session, r.Provider}] == nil:
			adopted = append(adopted, s.adopt(r, owner, found[i]))
			listed[r.ID.Instance] = append(found[:i:i], found[i+1:]...)
		case i < 0 && !serves: // one that is tried may have another account
		case i >= 0, owner.Description().Ephemeral, now.Sub(s.since(r)) >= failpoint.Hasten(listDelay):
			// A twin alone proves nothing of the one that the record is about, which
			// may be listed later; it is an orphan.
			ended := Ended{ID: r.ID, At: s.started}
			if r.adoptable() {
				ended.Reason = reasonLost
				if owner.Description().Ephemeral {
					ended.Reason = reasonRestart
				}
			}
			counted := s.resolved(r)
			if len(found) > 0 {
				s.orphaned(owner, found[max(i, 0)].ID, counted, r, ended)
				continue
			}
			counted.Release()
			gone = append(gone, ended)
		}
	}
	if len(gone) > 0 {
		s.bury(gone...)
	}
	return adopted
}

// byProvidersID returns the instance parts of the records that are the owner's to
// settle, by its own IDs. The caller holds mu.
func (s *Service) byProvidersID(owner Provider) map[string]string {
	names := map[string]string{}
	for _, r := range s.recovered {
		if r.Provider == owner.Label() && r.Made != "" {
			names[r.Made] = r.ID.Instance
		}
	}
	return names
}

// pickInstance returns the index of the record's instance among those that carry its
// label, less than 0 if it is not there.
func pickInstance(r Record, found []sdk.Instance) int {
	for i := range found {
		if r.Made == "" || found[i].ID == r.Made {
			return i
		}
	}
	return -1
}

// abandon drops the records that nobody will ever answer for, because their provider
// is not configured any more: their instances have ended by themselves, with an earlier
// broker if they were its processes'.
func (s *Service) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	limits := s.limits()
	var gone []Ended
	for _, r := range s.recovered {
		ended := Ended{ID: r.ID, At: time.Now(), Reason: reasonExpired}
		switch {
		case time.Since(r.Intended) > limits.MaxLifetime+limits.slack():
		case r.Ephemeral && !s.configured(r.Provider):
			ended.At, ended.Reason = s.started, reasonRestart
		default:
			continue
		}
		gone = append(gone, ended)
		s.resolved(r).Release()
	}
	if len(gone) > 0 {
		s.bury(gone...)
	}
}
