package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A creation of which nobody knows what it has made is not waited for longer than
// Patience.Unclear where another provider could be asked, and one by which the broker
// tries a provider whose circuit is open not longer than trialPatience. It is forsaken
// then: its session may have another instance, and what it makes all the same, or has
// made, is destroyed when it is found. Until then it stays in the registry and counts.
//
// That is written down before the next provider is asked, by noteGivenUp. Between the
// record of an instance as made and its announcement nothing can be forsaken.

// trialPatience is how long a request waits for a provider whose circuit is open, where
// another one is ready.
const trialPatience = time.Second

// errForsaken is in the errors of those who have forsaken a creation.
var errForsaken = errors.New("its creation is not waited for")

// forsake gives a creation up, and reports whether its session may have another instance.
// It may not when the creation has ended or is about to.
func (s *Service) forsake(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.forsaken:
		return true
	case e.announced || e.state != creating && e.state != unsettled:
		return false
	}
	e.forsaken = true
	if key := e.sessionKey(); s.sessions[key] == e {
		delete(s.sessions, key)
	}
	close(e.left)
	return true
}

// reclaim makes a creation that was forsaken its session's again, since nobody else
// could serve. It reports whether that was in time.
func (s *Service) reclaim(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := e.sessionKey()
	if !e.forsaken || e.announced || e.state != creating && e.state != unsettled || s.sessions[key] != nil {
		return false
	}
	e.forsaken, e.left = false, make(chan struct{})
	s.sessions[key] = e
	return true
}

// announce reports whether what a creation has made becomes its session's instance. From
// then on it cannot be forsaken, or reclaimed if it was. The caller holds mu.
func (e *entry) announce() bool {
	e.announced = true
	return !e.forsaken
}

// leftOf returns what closes when somebody forsakes the creation.
func (s *Service) leftOf(e *entry) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.left
}

// forsakenError is for the request that has forsaken a creation.
func (s *Service) forsakenError(e *entry) error {
	err := s.failureOf(e)
	if err == nil {
		err = sdk.Errorf(sdk.CodeUnavailable, "provider %q has not made an instance within %s", e.provider.Label(), trialPatience)
	}
	return fmt.Errorf("%w (%w)", err, errForsaken)
}

// doubtful returns a creation that failed with err and may have made something.
func (s *Service) doubtful(e *entry, err error) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || !e.forsaken && e.state != unsettled {
		return nil
	}
	return e
}

// doubtOf returns the creation of the session at a provider that is unclear, nil if there
// is none.
func (s *Service) doubtOf(w wish, home Provider) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.sessions[sessionKey{w.tenant.Name, w.session, home.Label()}]
	if e == nil || e.state != unsettled {
		return nil
	}
	return e
}

// bear waits for certainty about an unclear creation, whether or not its provider can be
// asked. It returns errMoved when that has come, and an error when it has not.
func (r *route) bear(ctx context.Context, e *entry, way onTheWay) error {
	s := r.service
	s.mu.Lock()
	e.waiters++
	s.mu.Unlock()
	switch again, err := s.await(ctx, e, true, way); {
	case errors.Is(err, errForsaken):
		return &Fault{Provider: e.provider.Label(), Err: err, elsewhere: true, doubtful: e}
	case errors.Is(err, errMoved):
	case err != nil:
		return &Fault{Provider: e.provider.Label(), Err: err}
	case !again:
		s.mu.Lock()
		s.drop(e)
		s.mu.Unlock()
	}
	return errMoved
}

// comesBack has a request whose other providers could not serve wait for what it has
// forsaken, once. It reports whether there is something to wait for.
func (r *route) comesBack(ctx context.Context, err error) (waits bool, _ error) {
	code := sdk.CodeOf(err)
	if r.cameBack || ctx.Err() != nil || errors.Is(err, errShuttingDown) || code == sdk.CodeInvalidRequest || code == sdk.CodeNotSupported {
		return false, err
	}
	fault, ok := errors.AsType[*Fault](err)
	last := ok && fault.doubtful != nil && len(r.forsaken) > 0
	if last && !r.service.forsake(fault.doubtful) {
		return false, err // that one is about to be made
	}
	for _, e := range r.forsaken {
		if r.service.reclaim(e) {
			r.cameBack, r.ordered = true, false
			r.wish.session = e.id.Session // if it had none it shares this one with nobody
			if err := r.bear(ctx, e, onTheWay{faithful: true}); !errors.Is(err, errMoved) {
				return false, err
			}
			return true, nil
		}
	}
	return false, err
}
