package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	// stock is the size of the pool under a sustained load. The clock starts when it is
	// used up.
	stock = 4
	// leastRate is an aim: so much of what runsc alone makes.
	leastRate = 0.9
	// manyClients of one-shots.
	manyClients = 10
	// oneShotSetting lets one-shots of a tenant share a sandbox. Builds that do not know
	// it are not measured with it.
	oneShotSetting = "one_shot"
	sharedByTenant = oneShotSetting + ` = "tenant"`
)

// busy is how sides take turns that keep the processors busy.
var busy = contest{turns: fewTurns, rest: quiet}

// oneShots has clients run one-shots as fast as they are answered.
func oneShots(clients int, p program) func(d *daemon) turn {
	return func(d *daemon) turn {
		return sustained(clients, stock+clients, func(int) error { return d.oneShot(p) })
	}
}

// beside is `runsc run` by itself, as many at once.
func (r *rawRunsc) beside(atOnce int) *side {
	return &side{
		name: fmt.Sprintf("`runsc run` of the same bundle with `%s` as process 1, %d at once", r.program.code, atOnce),
		turn: sustained(atOnce, atOnce, func(int) error { return r.run() }),
	}
}

// measureFresh measures one-shots in a fresh sandbox each, by more and more clients.
func measureFresh(ctx context.Context, l lab, count int) ([]line, error) {
	return besideRunsc(ctx, l, count, fmt.Sprintf("pool_size = %d", stock), pythonHello, []string{python, "-c"}, func(ds daemons, raw *rawRunsc) []entry {
		var entries []entry
		for _, clients := range []int{1, 2, manyClients} {
			e := entry{
				row:  fmt.Sprintf("fresh/%d", clients),
				what: fmt.Sprintf("`POST /execute` of Python hello, each in a fresh sandbox, sustained, %d clients", clients),
				ours: ds.sides(oneShots(clients, pythonHello)), beside: raw.beside(clients), claims: []claim{ratio(rate).atLeast(leastRate)},
			}
			if len(entries) > 0 {
				e.claims = append(e.claims, ratio(rate).to(entries[len(entries)-1].row).atLeast(1))
			}
			entries = append(entries, e)
		}
		return entries
	})
}

func measureJavaScript(ctx context.Context, l lab, count int) ([]line, error) {
	return besideRunsc(ctx, l, count, fmt.Sprintf("pool_size = %d", stock), nodeHello, []string{node, "-e"}, func(ds daemons, raw *rawRunsc) []entry {
		return []entry{{
			row: "javascript/10", what: fmt.Sprintf("`POST /execute` of Node hello, each in a fresh sandbox, sustained, %d clients", manyClients),
			ours: ds.sides(oneShots(manyClients, nodeHello)), beside: raw.beside(manyClients), claims: []claim{ratio(rate).atLeast(leastRate)},
		}}
	})
}

// measureTenant measures one-shots of one tenant that share a sandbox.
func measureTenant(ctx context.Context, l lab, count int) ([]line, error) {
	e := entry{
		row: "tenant/10", what: fmt.Sprintf("`POST /execute` of Python hello with `%s`, sustained, %d clients", sharedByTenant, manyClients),
		claims: []claim{ratio(rate).atLeast(3)},
	}
	able := l
	able.builds = nil
	for i, b := range l.builds {
		knows, err := b.has(ctx, oneShotSetting)
		switch {
		case err != nil:
			return nil, err
		case knows:
			able.builds = append(able.builds, b)
		case i == 0:
			return []line{{Row: e.row, What: e.what, Note: "not measured: this build has no setting `" + oneShotSetting + "`"}}, nil
		}
	}
	return besideRunsc(ctx, able, count, fmt.Sprintf("pool_size = %d\n  %s", stock, sharedByTenant), pythonHello, []string{python, "-c"}, func(ds daemons, raw *rawRunsc) []entry {
		e.ours, e.beside = ds.sides(oneShots(manyClients, pythonHello)), raw.beside(manyClients)
		return []entry{e}
	})
}

// measureSustained measures the whole life of an instance, as it is and with images.
func measureSustained(ctx context.Context, l lab, count int) ([]line, error) {
	lines, err := measureLives(ctx, l, count, "sustained/4", "", leastRate)
	if err != nil || os.Geteuid() != 0 { // copies are for root only
		return lines, err
	}
	copies, err := measureLives(ctx, l, count, "sustained/images", `images = "always"`, 1.1)
	return append(lines, copies...), err
}

// measureLives measures with a further setting of the provider, "" for none.
func measureLives(ctx context.Context, l lab, count int, row, setting string, least float64) ([]line, error) {
	return besideRunsc(ctx, l, count, fmt.Sprintf("pool_size = %d\n  %s", stock, setting), pythonHello, []string{python, "-c"}, func(ds daemons, raw *rawRunsc) []entry {
		what := fmt.Sprintf("fresh sandboxes, sustained: create, run Python hello, destroy through REST, %d clients", crew())
		if setting != "" {
			what += ", `" + setting + "`"
		}
		return []entry{{
			row: row, what: what,
			ours: ds.sides(func(d *daemon) turn {
				return sustained(crew(), stock+crew(), func(int) error { return d.lifeCycle(pythonHello) })
			}),
			beside: raw.beside(crew()), claims: []claim{ratio(rate).atLeast(least)},
		}}
	})
}

// besideRunsc measures entries of brokers with these settings and of runsc by itself,
// which runs a program with these arguments before its code.
func besideRunsc(ctx context.Context, l lab, count int, settings string, p program, argv []string, entries func(daemons, *rawRunsc) []entry) (lines []line, err error) {
	// Many clients wait for each other's sandboxes, on a slow machine for long.
	ds, err := l.start(ctx, l.selfManaged(settings+"\n  queue_timeout = \"5m\"")+"limits { create_timeout = \"10m\" }")
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	if err := ds.each(func(d *daemon) error { return d.oneShot(p) }); err != nil { // so that there is a sandbox
		return nil, err
	}
	if err := quiet(ctx); err != nil {
		return nil, err
	}
	raw, err := newRawRunsc(ds[0], p, argv...)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, raw) }()
	return busy.run(ctx, count, entries(ds, raw))
}

// measureConcurrent sends many requests at once, many more than the pool holds.
func measureConcurrent(ctx context.Context, l lab, count int) (lines []line, err error) {
	ds, err := l.start(ctx, l.selfManaged(fmt.Sprintf("pool_size = %d\n  queue_timeout = \"5m\"", poolOfSix))+"limits { create_timeout = \"10m\" }")
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	lines, err = contest{turns: 1, rest: quiet}.run(ctx, count, []entry{{
		row:  "concurrent",
		what: fmt.Sprintf("%d `POST /execute` of Python hello at once, each in a fresh sandbox, pool of %d", count, poolOfSix),
		ours: ds.sides(func(d *daemon) turn { return atOnce(func() error { return d.oneShot(pythonHello) }) }),
	}})
	for i := range lines {
		lines[i].Note = "all succeeded, as they should" // else there is an error
	}
	return lines, err
}

// atOnce begins all at the same time.
func atOnce(do func() error) turn {
	return func(_ context.Context, count int) (measured, error) {
		all, errs := make(times, count), make([]error, count)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range count {
			wg.Go(func() {
				errs[i] = do()
				all[i] = time.Since(began)
			})
		}
		wg.Wait()
		return measured{took: all, within: time.Since(began)}, errors.Join(errs...)
	}
}
