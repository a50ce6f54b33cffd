package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// idleFor is how long the CPU time of idle sandboxes is watched in each turn.
	idleFor = 2500 * time.Millisecond
	// calm is how long the last sandbox may take to come to rest.
	calm = 2 * time.Second
)

// measureIdle holds many Python sandboxes that are ready and do nothing. They are made
// in turns: what each turn adds, divided by how many it makes, is a measurement of its
// own. An older build has its turns afterwards, when there is room.
func measureIdle(ctx context.Context, l lab, count int) ([]line, error) {
	if l.held > 0 {
		count = l.held
	}
	size := line{
		Row: "idle/size", What: fmt.Sprintf("an idle warm Python sandbox: PSS of all its processes on the host, and their number; %d held", count),
		Claims: []claim{own(memory).atMost(30), own(processes).atMost(8)},
	}
	work := line{
		Row: "idle/cpu", What: fmt.Sprintf("broker and plugin while %d idle sandboxes are held, over %.0f s", count, manyTurns*idleFor.Seconds()),
		BesideWhat: "the sandboxes themselves together", Claims: []claim{own(processor).atMost(5)},
	}
	for i, b := range l.builds {
		one := l
		one.builds = []build{b}
		held, ours, theirs, err := one.idle(ctx, count)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			size.Ours, work.Ours, work.Beside = held, ours, theirs
		} else {
			size.Old, work.Old = held, ours
		}
	}
	for _, l := range []*line{&size, &work} {
		for i, c := range l.Claims {
			l.Claims[i] = c.about(*l, nil)
		}
	}
	return []line{size, work}, nil
}

// idle measures one build: its sandboxes, and what broker and plugin, and the
// sandboxes, need meanwhile.
func (l lab) idle(ctx context.Context, count int) (held, ours, theirs *series, err error) {
	ds, err := l.start(ctx, l.selfManaged(fmt.Sprintf("pool_size = 0\n  max_sandboxes = %d\n  queue_timeout = \"10m\"", count))+"limits { create_timeout = \"10m\" }")
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	if held, err = ds[0].holdInTurns(ctx, count); err != nil {
		return nil, nil, nil, err
	}
	ours, theirs, err = ds[0].watchIdle(ctx)
	return held, ours, theirs, err
}

// holdInTurns makes sandboxes that stay, and weighs them.
func (d *daemon) holdInTurns(ctx context.Context, count int) (*series, error) {
	turns := min(fewTurns, count)
	s := &series{N: count}
	made, weighed, counted := 0, int64(0), 0
	for i := range turns {
		each := count*(i+1)/turns - made
		made += each
		if err := d.hold(ctx, each); err != nil {
			return nil, err
		}
		if err := wait(ctx, calm); err != nil {
			return nil, err
		}
		p, err := d.parts()
		if err != nil {
			return nil, err
		}
		pss, err := p.sandboxes.pss()
		if err != nil {
			return nil, err
		}
		s.Turns = append(s.Turns, perSandbox(pss-weighed, len(p.sandboxes)-counted, each))
		s.All = perSandbox(pss, len(p.sandboxes), made)
		weighed, counted = pss, len(p.sandboxes)
	}
	return s, nil
}

func perSandbox(pss int64, count, sandboxes int) figures {
	return figures{memory: float64(pss) / (1 << 20) / float64(sandboxes), processes: float64(count) / float64(sandboxes)}
}

// watchIdle measures what is used while nothing is done.
func (d *daemon) watchIdle(ctx context.Context) (ours, theirs *series, err error) {
	p, err := d.parts()
	if err != nil {
		return nil, nil, err
	}
	ours, theirs = &series{N: manyTurns}, &series{N: manyTurns}
	began, most := time.Now(), time.Duration(0)
	ourFirst, theirFirst, err := p.cpu()
	ourLast, theirLast := ourFirst, theirFirst
	for range manyTurns {
		if err != nil {
			return nil, nil, err
		}
		if err := wait(ctx, idleFor); err != nil {
			return nil, nil, err
		}
		ourNow, theirNow, failed := p.cpu()
		now := time.Since(began)
		ours.Turns = append(ours.Turns, share(ourNow-ourLast, now-most))
		theirs.Turns = append(theirs.Turns, share(theirNow-theirLast, now-most))
		ourLast, theirLast, most, err = ourNow, theirNow, now, failed
	}
	ours.All, theirs.All = share(ourLast-ourFirst, most), share(theirLast-theirFirst, most)
	return ours, theirs, err
}

// share of a CPU.
func share(used, of time.Duration) figures {
	return figures{processor: 100 * float64(used) / float64(of)}
}

// hold makes Python sandboxes that stay.
func (d *daemon) hold(ctx context.Context, count int) error {
	g, ctx := errgroup.WithContext(ctx)
	var made atomic.Int64
	for range crew() {
		g.Go(func() error {
			for ctx.Err() == nil && int(made.Add(1)) <= count {
				if _, err := d.create(pythonHello.template); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

// parts are the processes of a broker: its own and its plugins', and those of
// sandboxes.
type parts struct{ ours, sandboxes family }

func (d *daemon) parts() (p parts, err error) {
	all, err := listProcesses()
	if err != nil {
		return p, err
	}
	for _, one := range all {
		if one.pid == d.cmd.Process.Pid || one.parent == d.cmd.Process.Pid {
			p.ours = append(p.ours, one)
		}
	}
	for _, one := range descendants(all, d.cmd.Process.Pid) {
		if one.parent != d.cmd.Process.Pid {
			p.sandboxes = append(p.sandboxes, one)
		}
	}
	return p, nil
}

// cpu is the time that each of the two parts has used.
func (p parts) cpu() (ours, sandboxes time.Duration, err error) {
	if ours, err = p.ours.exactCPU(); err != nil {
		return 0, 0, err
	}
	sandboxes, err = p.sandboxes.exactCPU()
	return ours, sandboxes, err
}
