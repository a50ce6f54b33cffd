package instance

import (
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Renew moves the end of an instance's time to ttl from now, sooner or later than
// it was, and never beyond its maximum lifetime: ExpiresAt of the answer is what
// was granted. Zero means the instance's own TTL. It counts as a use for the idle
// limit. Errors carry SB009, SB010 or SB013.
func (s *Service) Renew(who tenant.Tenant, id string, ttl time.Duration) (Info, error) {
	if ttl < 0 {
		return Info{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be more than 0")
	}
	e, info, err := s.renew(who, id, ttl)
	if err != nil {
		return Info{}, err
	}
	// Before the answer: who is told a time may count on it.
	ctx, cancel := s.noting()
	defer cancel()
	if err := s.journalOf(e).Amend(ctx, e.id, func(r *Record) { r.Expires, r.Used = info.ExpiresAt, false }); err != nil {
		return Info{}, e.fault(err)
	}
	return info, nil
}

func (s *Service) renew(who tenant.Tenant, id string, ttl time.Duration) (*entry, Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil, Info{}, shuttingDown()
	}
	now := time.Now()
	e, err := s.find(who, id, now)
	if err != nil {
		return nil, Info{}, err
	}
	if ttl == 0 {
		ttl = e.ttl
	}
	e.lastUsed, e.useNoted = now, false // the next use is to be noted again
	e.expires = earlier(now.Add(min(ttl, s.limits().MaxLifetime)), e.deadline)
	return e, e.info(now), nil
}
