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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return Info{}, shuttingDown()
	}
	now := time.Now()
	e, err := s.find(who, id, now)
	if err != nil {
		return Info{}, err
	}
	if ttl == 0 {
		ttl = e.ttl
	}
	e.lastUsed = now
	e.expires = earlier(now.Add(min(ttl, s.limits().MaxLifetime)), e.deadline)
	return e.info(now), nil
}
