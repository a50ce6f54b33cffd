package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// manyTurns and fewTurns are how often the sides of a row take turns. Nine are the
// fewest of which one may be an outlier and leave an interval of 95 % as it is; with
// six, the fewest that have one, none may.
const (
	manyTurns = 9
	fewTurns  = 6
)

// side is one of the things that take turns.
type side struct {
	name string
	turn turn
}

// turn measures so many times.
type turn func(ctx context.Context, count int) (measured, error)

// measured is what one turn, or all of them, gave.
type measured struct {
	took times
	// within is the time in which they were done, 0 where they were not done as fast
	// as possible.
	within time.Duration
}

func (m measured) figures() figures {
	f := m.took.figures()
	if m.within > 0 {
		f[rate] = float64(len(m.took)) / m.within.Seconds()
	}
	return f
}

func (m measured) plus(o measured) measured {
	return measured{append(m.took, o.took...), m.within + o.within}
}

// sure leaves out what so few measurements do not tell.
func (f figures) sure(count int) figures {
	for q, fewest := range map[quantity]int{p95: 20, p99: 100} {
		if count < fewest {
			delete(f, q)
		}
	}
	return f
}

// contest is how sides take turns.
type contest struct {
	turns int
	warm  int                         // measurements of each side before the first turn, which do not count
	rest  func(context.Context) error // before each turn of a side; nil for none
	// singly lets the sides alternate after each measurement, and not after all of a
	// turn.
	singly bool
}

// entry is a line of the table to be measured.
type entry struct {
	row, what string
	ours      []*side // one for each build
	beside    *side   // what it is compared with, nil for nothing; several entries may share it
	claims    []claim
}

// run measures all sides of the entries in turn, count times each. The order is
// turned round each time, so that none is always the one behind another.
func (c contest) run(ctx context.Context, count int, entries []entry) ([]line, error) {
	var sides []*side
	for _, e := range entries {
		for _, s := range append(slices.Clone(e.ours), e.beside) {
			if s != nil && !slices.Contains(sides, s) {
				sides = append(sides, s)
			}
		}
	}
	turns := max(min(c.turns, count), 1)
	sums, all := map[*side]measured{}, map[*side]*series{}
	for i := range turns + 1 {
		each := (count*i)/turns - (count*(i-1))/turns
		if i == 0 {
			each = c.warm
		}
		if each == 0 {
			continue
		}
		round, err := c.round(ctx, each, sides)
		if err != nil {
			return nil, err
		}
		for s, m := range round {
			if i == 0 {
				continue
			}
			if all[s] == nil {
				all[s] = &series{}
			}
			all[s].Turns = append(all[s].Turns, m.figures().sure(len(m.took)))
			sums[s] = sums[s].plus(m)
		}
		slices.Reverse(sides)
	}
	for s, sum := range sums {
		all[s].N, all[s].All = len(sum.took), sum.figures()
	}
	lines := make([]line, 0, len(entries))
	for _, e := range entries {
		l := line{Row: e.row, What: e.what, Ours: all[e.ours[0]]}
		if len(e.ours) > 1 {
			l.Old = all[e.ours[1]]
		}
		if e.beside != nil {
			l.BesideWhat, l.Beside = e.beside.name, all[e.beside]
		}
		for _, c := range e.claims {
			l.Claims = append(l.Claims, c.about(l, lines))
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// round is a turn of each side.
func (c contest) round(ctx context.Context, count int, sides []*side) (map[*side]measured, error) {
	all, times, each := map[*side]measured{}, 1, count
	if c.singly {
		times, each = count, 1
	}
	for range times {
		for _, s := range sides {
			if c.rest != nil {
				if err := c.rest(ctx); err != nil {
					return nil, err
				}
			}
			m, err := s.turn(ctx, each)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			all[s] = all[s].plus(m)
		}
	}
	return all, nil
}

// settle is the pause before each measurement of single executions: a pool that is
// full is what is measured there, and not how fast it is filled.
const settle = 250 * time.Millisecond

// spaced times one after the other, each after a pause.
func spaced(pause time.Duration, do func() error) turn {
	return func(ctx context.Context, count int) (m measured, err error) {
		for range count {
			if err := wait(ctx, pause); err != nil {
				return m, err
			}
			began := time.Now()
			if err := do(); err != nil {
				return m, err
			}
			m.took = append(m.took, time.Since(began))
		}
		return m, nil
	}
}

// steady begins so many a second, however long each takes, and times them from the
// moment when they should have begun: a server that is late for one is late for those
// behind it too.
func steady(perSecond float64, do func() error) turn {
	return func(ctx context.Context, count int) (measured, error) {
		// Go's own timers are rounded up to a millisecond where a process has little
		// else to do. That would be most of what is measured, and more of it on the
		// side that gives the client less to do.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		all, errs := make(times, count), make([]error, count)
		var wg sync.WaitGroup
		began := time.Now()
		for i := range count {
			due := began.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
			for left := time.Until(due); left > 0; left = time.Until(due) {
				pause := unix.NsecToTimespec(left.Nanoseconds())
				_ = unix.Nanosleep(&pause, nil) // when a signal cuts it short, it is done again
			}
			if ctx.Err() != nil {
				break
			}
			wg.Go(func() {
				errs[i] = do()
				all[i] = time.Since(due)
			})
		}
		wg.Wait()
		failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
		if len(failed) > 0 {
			return measured{}, fmt.Errorf("%d of %d requests failed, the first: %w", len(failed), count, failed[0])
		}
		return measured{took: all}, ctx.Err()
	}
}

// crew keeps all processors busy with sandboxes, whose start waits now and then.
func crew() int { return 2 * runtime.NumCPU() }

// sustained has clients do something over and over, each in its own name, and times
// count of them once the first have been done. All work while the clock runs: those
// that are under way at its beginning make up for those at its end.
func sustained(clients, first int, do func(client int) error) turn {
	return func(ctx context.Context, count int) (m measured, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var done atomic.Int64
		var began, ended time.Time // each is set by one client
		all, errs := make([]times, clients), make([]error, clients)
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				for ctx.Err() == nil {
					start := time.Now()
					if err := do(i); err != nil {
						errs[i] = err
						cancel()
						return
					}
					took := time.Since(start)
					switch n := int(done.Add(1)); {
					case n == first:
						began = time.Now()
					case n > first && n <= first+count:
						all[i] = append(all[i], took)
						if n == first+count {
							ended = time.Now()
							cancel()
						}
					}
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return m, err
		}
		if ended.IsZero() {
			return m, ctx.Err()
		}
		return measured{took: slices.Concat(all...), within: ended.Sub(began)}, nil
	}
}

// alone is sustained with one client, from the first on.
func alone(do func() error) turn {
	return func(ctx context.Context, count int) (m measured, err error) {
		began := time.Now()
		m, err = spaced(0, do)(ctx, count)
		m.within = time.Since(began)
		return m, err
	}
}
