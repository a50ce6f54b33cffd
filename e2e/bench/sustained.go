package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// stock is the size of the pool under a sustained load.
const stock = 4

// rounds is how often the broker and what it is compared with take turns.
const rounds = 3

// crew keeps all processors busy with sandboxes, whose start waits now and then.
func crew() int { return 2 * runtime.NumCPU() }

// throughput is how often something was done, and in what time.
type throughput struct {
	done int
	took time.Duration
}

func (t throughput) rate() float64 { return float64(t.done) / t.took.Seconds() }

func (t throughput) plus(o throughput) throughput {
	return throughput{t.done + o.done, t.took + o.took}
}

func (t throughput) String() string { return fmt.Sprintf("%.1f a second", t.rate()) }

// sustain has a crew do something over and over, and times count of them once
// the first have been done. All work while the clock runs: those that are under
// way at its beginning make up for those at its end.
func sustain(ctx context.Context, workers, first, count int, do func() error) (throughput, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var done atomic.Int64
	var began, ended time.Time // each is set by one worker
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := do(); err != nil {
					errs[i] = err
					cancel()
					return
				}
				switch int(done.Add(1)) {
				case first:
					began = time.Now()
				case first + count:
					ended = time.Now()
					cancel()
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return throughput{}, err
	}
	if ended.IsZero() {
		return throughput{}, ctx.Err()
	}
	return throughput{count, ended.Sub(began)}, nil
}

// contest lets two take turns under a sustained load. Between them everything
// comes to rest.
func contest(ctx context.Context, count int, rest func(context.Context) error, ours, theirs func() error) (a, b throughput, err error) {
	each := max(count/rounds, 1)
	for range rounds {
		for _, side := range []struct {
			do    func() error
			first int
			sum   *throughput
		}{{ours, stock + crew(), &a}, {theirs, crew(), &b}} {
			if err := rest(ctx); err != nil {
				return a, b, err
			}
			t, err := sustain(ctx, crew(), side.first, each, side.do)
			if err != nil {
				return a, b, err
			}
			*side.sum = side.sum.plus(t)
		}
	}
	return a, b, nil
}

// leastRate is the aim: so much of what runsc alone makes.
const leastRate = 0.9

func measureSustained(ctx context.Context, l lab, count int) ([]line, error) {
	lines, err := sustainedWith(ctx, l, count, "")
	if err != nil || os.Geteuid() != 0 { // copies are for root only
		return lines, err
	}
	copies, err := sustainedWith(ctx, l, count, "images = true")
	return append(lines, copies...), err
}

// sustainedWith measures with a further setting of the provider, "" for none.
func sustainedWith(ctx context.Context, l lab, count int, setting string) (lines []line, err error) {
	d, err := startDaemon(ctx, l, l.plugins(), fmt.Sprintf("provider \"self_managed\" {\n  pool_size = %d\n  %s\n}", stock, setting))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, d) }()
	if err := d.oneShot(pythonHello); err != nil { // so that there is a sandbox
		return nil, err
	}
	if err := quiet(ctx); err != nil {
		return nil, err
	}
	raw, err := newRawRunsc(d, pythonHello, python, "-c")
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, raw) }()
	ours, theirs, err := contest(ctx, count, quiet, func() error { return d.lifeCycle(pythonHello) }, raw.run)
	if err != nil {
		return nil, err
	}
	share := ours.rate() / theirs.rate()
	if setting != "" {
		setting = ", `" + setting + "`"
	}
	return []line{{
		what:     fmt.Sprintf("fresh sandboxes, sustained: create, run Python hello, destroy through REST, %d clients%s", crew(), setting),
		measured: ours.String(),
		beside:   fmt.Sprintf("`runsc run` of the same bundle with Python hello as process 1, %d at once: %s", crew(), theirs),
		compared: fmt.Sprintf("%.2fx", share),
		aim:      fmt.Sprintf(">= %.1fx", leastRate),
		met:      judge(share >= leastRate),
	}}, nil
}
