package instance

import (
	"errors"
	"slices"
)

// errMoved means that a request was on its way to a provider that another has
// taken over from, or where what it waited for is not to be. It looks for its way anew.
var errMoved = errors.New("the request belongs elsewhere by now")

// retirement is that of a provider which gets no new instances.
type retirement struct {
	empty chan struct{} // closed when it has no entries
	// lost means that nobody can reach it any more: what a creation or a list still
	// says of its instances is of no use.
	lost bool
}

// Retire makes no more instances on a provider that is no longer in the catalog.
// Those that it has live on. What it returns is closed when none is left.
func (s *Service) Retire(p Provider) (empty <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.retirement(p)
	s.closeIfEmpty(p)
	return r.empty
}

// Lose forgets what is left on a provider that is no more: nobody can reach it. A
// creation that has not ended is forgotten when it has.
func (s *Service) Lose(p Provider) { s.loseAll(p, reasonRemoved) }

// EndWithProcess forgets what is left on a provider whose instances end with its process,
// which has ended.
func (s *Service) EndWithProcess(p Provider) { s.loseAll(p, reasonProcess) }

func (s *Service) loseAll(p Provider, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retirement(p).lost = true
	for _, e := range s.entries {
		if e.provider == p && e.state != creating {
			s.lose(e, reason)
		}
	}
	s.closeIfEmpty(p)
}

// retirement returns the retirement of a provider, which may begin now. The caller holds
// mu, and calls closeIfEmpty.
func (s *Service) retirement(p Provider) *retirement {
	r := s.retired[p]
	if r == nil {
		r = &retirement{empty: make(chan struct{})}
		s.retired[p] = r
	}
	return r
}

// isLost reports whether nobody can reach a provider any more. The caller holds mu.
func (s *Service) isLost(p Provider) bool {
	r := s.retired[p]
	return r != nil && r.lost
}

// serves reports whether a provider is in the catalog or has instances still. The
// caller holds mu.
func (s *Service) serves(p Provider) bool { return s.retired[p] != nil || s.offers(p) }

// configured reports whether a provider of that label is in the catalog. The caller holds
// mu.
func (s *Service) configured(label string) bool {
	return slices.ContainsFunc(s.catalog.Providers(), func(p Provider) bool { return p.Label() == label })
}

// offers reports whether new instances are made on that very provider.
func (s *Service) offers(p Provider) bool { return slices.Contains(s.catalog.Providers(), p) }

// Instances says how many there are on a provider, those that are being made or
// destroyed included.
func (s *Service) Instances(p Provider) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count(p)
}

// InUse says how many there are on a provider that somebody may have something of: those
// that were given up, and may be there still, do not count.
func (s *Service) InUse(p Provider) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.entries {
		if e.provider == p && (e.state == creating || e.state == live) {
			n++
		}
	}
	return n
}

func (s *Service) count(p Provider) int {
	n := 0
	for _, e := range s.entries {
		if e.provider == p {
			n++
		}
	}
	return n
}

// forget removes an entry. The caller holds mu.
func (s *Service) forget(e *entry) {
	delete(s.entries, e.id.String())
	if !e.buried && e.recorded() {
		e.buried = true
		s.bury(e.epitaph())
	}
	e.permit.Release()
	s.closeIfEmpty(e.provider)
}

// closeIfEmpty ends the retirement of a provider that has no entries any more. The
// caller holds mu.
func (s *Service) closeIfEmpty(p Provider) {
	if r := s.retired[p]; r != nil && s.count(p) == 0 {
		close(r.empty)
		delete(s.retired, p)
	}
}
