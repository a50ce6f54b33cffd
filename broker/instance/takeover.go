package instance

import (
	"slices"
	"sync"
)

// Successor goes on with instances of brokers that are dead. Its methods may be called
// concurrently.
type Successor struct {
	service *Service
	mu      sync.Mutex // a record is loaded once
}

// SuccessorOf returns the one of a service, which has one.
func SuccessorOf(s *Service) *Successor { return &Successor{service: s} }

// Draining reports whether new work is refused.
func (s *Successor) Draining() bool { return s.service.Draining() }

// TakeOver loads the records of instances that were another broker's and are this one's from
// now on, and asks their providers for them. Those that it has already stay as they are.
func (s *Successor) TakeOver(records []Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.service
	var labels []string
	for _, r := range records {
		if e, _ := of.registry.ByName(r.ID.Instance); e != nil {
			continue
		}
		of.registry.Load(r, of.admission.quotas.Adopt(r.ID.Tenant, r.Provider, r.Released))
		if !slices.Contains(labels, r.Provider) {
			labels = append(labels, r.Provider)
		}
	}
	for _, label := range labels {
		of.logger.Info("this broker goes on with instances of another one", "provider", label)
		of.reconciler.Soon(label)
	}
}
