package instance

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// look is a list of one provider that several may share who want to know what there
// is: when a back end fails, many creations fail at once.
type look struct {
	users int           // who look or wait for their turn; guarded by Service.mu
	turn  chan struct{} // held by who looks
	began time.Time
	list  []sdk.Instance
	err   error
}

// look returns a list that began after it was asked for, and when that was. Two
// providers of one label, as there are after an upgrade, each have their own.
func (s *Service) look(ctx context.Context, p Provider, ready sdk.Provider) (list []sdk.Instance, began time.Time, err error) {
	asked := time.Now()
	l := s.enterLook(p)
	defer s.leaveLook(p, l)
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, asked, ctx.Err()
	}
	defer func() { <-l.turn }()
	if !l.began.After(asked) {
		l.began = time.Now()
		l.list, l.err = ready.List(ctx)
	}
	return l.list, l.began, l.err
}

func (s *Service) enterLook(p Provider) *look {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.looks[p]
	if l == nil {
		l = &look{turn: make(chan struct{}, 1)}
		s.looks[p] = l
	}
	l.users++
	return l
}

// leaveLook forgets the list with its last user: whoever comes later needs a newer one.
func (s *Service) leaveLook(p Provider, l *look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(s.looks, p)
	}
}
