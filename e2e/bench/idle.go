package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// idleFor is how long the CPU time of idle sandboxes is watched.
	idleFor = 15 * time.Second
	// mostMemory of an idle sandbox, and mostIdle of one CPU for broker and
	// plugin, are the aims.
	mostMemory = 30 << 20
	mostIdle   = 0.05
)

// measureIdle holds many Python sandboxes that are ready and do nothing.
func measureIdle(ctx context.Context, l lab, count int) (lines []line, err error) {
	d, err := startDaemon(ctx, l, l.plugins(), fmt.Sprintf(`provider "self_managed" {
  pool_size     = 0
  max_sandboxes = %d
  queue_timeout = "10m"
}
limits { create_timeout = "10m" }`, count))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, d) }()
	if err := d.hold(ctx, count); err != nil {
		return nil, err
	}
	if err := wait(ctx, 2*time.Second); err != nil { // for the last one to come to rest
		return nil, err
	}
	p, err := d.parts()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	oursBefore, theirsBefore, err := p.cpu()
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, idleFor); err != nil {
		return nil, err
	}
	oursAfter, theirsAfter, err := p.cpu()
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	ours, theirs := ratio(oursAfter-oursBefore, took), ratio(theirsAfter-theirsBefore, took)
	memory, err := p.sandboxes.pss()
	if err != nil {
		return nil, err
	}
	each := memory / int64(count)
	return []line{
		{
			what:     fmt.Sprintf("memory of an idle warm Python sandbox, PSS of all its processes on the host, %d held", count),
			measured: fmt.Sprintf("%.1f MB (%.1f processes each)", float64(each)/(1<<20), float64(len(p.sandboxes))/float64(count)),
			aim:      fmt.Sprintf("<= %d MB", mostMemory>>20),
			met:      judge(each <= mostMemory),
		},
		{
			what:     fmt.Sprintf("broker and plugin while %d idle sandboxes are held, over %.0f s", count, took.Seconds()),
			measured: fmt.Sprintf("%.2f %% of a CPU", 100*ours),
			beside:   fmt.Sprintf("the sandboxes themselves together: %.2f %% of a CPU", 100*theirs),
			aim:      fmt.Sprintf("<= %.0f %%", 100*mostIdle),
			met:      judge(ours <= mostIdle),
		},
	}, nil
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
	all, err := processes()
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
