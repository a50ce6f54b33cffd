package instance

import (
	"errors"
	"slices"
)

// errMoved means that a request was on its way to a provider that another has
// taken over from, or where what it waited for is not to be. It looks for its way anew.
var errMoved = errors.New("the request belongs elsewhere by now")

// Retire makes no more instances on a provider that is no longer in the catalog.
// Those that it has live on. What it returns is closed when none is left.
func (s *Service) Retire(p Provider) (empty <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired[p] == nil {
		s.retired[p] = make(chan struct{})
	}
	empty = s.retired[p]
	s.closeIfEmpty(p)
	return empty
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
	if s.retired[e.provider] != nil {
		s.closeIfEmpty(e.provider)
	}
}

// closeIfEmpty tells who waits for the end of a retired provider. The caller holds
// mu.
func (s *Service) closeIfEmpty(p Provider) {
	if s.count(p) == 0 {
		close(s.retired[p])
		delete(s.retired, p)
	}
}
