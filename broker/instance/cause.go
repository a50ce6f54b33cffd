package instance

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/origin"
)

// because says why an instance is destroyed, unless ctx says it already.
func (s *Service) because(ctx context.Context, e *entry) context.Context {
	if origin.Known(ctx) {
		return ctx
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, cause := time.Now(), origin.Broker
	switch {
	case !e.deadline.IsZero() && (!now.Before(e.expires) || !now.Before(e.lastUsed.Add(e.idle))):
		cause = origin.Expired
	case e.doomed:
		cause = origin.NotKept
	case s.draining:
		cause = origin.Shutdown
	}
	return origin.With(ctx, origin.Origin{Cause: cause})
}
