package instance

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// look is a list of one provider that several may share who want to know what there
// is: when a back end fails, many creations fail at once.
type look struct {
	turn  chan struct{} // held by who looks
	began time.Time
	list  []sdk.Instance
	err   error
}

// look returns a list that began after it was asked for, and when that was.
func (s *Service) look(ctx context.Context, p Provider, ready sdk.Provider) (list []sdk.Instance, began time.Time, err error) {
	asked := time.Now()
	s.mu.Lock()
	l := s.looks[p.Label()]
	if l == nil {
		l = &look{turn: make(chan struct{}, 1)}
		s.looks[p.Label()] = l
	}
	s.mu.Unlock()
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
