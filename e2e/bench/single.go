package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// poolOfSix is a pool that is larger than what one measurement of single executions
// takes.
const poolOfSix = 6

// subject is something to time, of which so many at once are useful; 0 for as many as
// come.
type subject struct {
	name string
	do   func() error
	most int
}

// bare runs a program of the machine as it is. More at once than keep the processors
// busy would only be slower.
func bare(p program, path string, args ...string) subject {
	args = append(args, p.code)
	return subject{
		name: fmt.Sprintf("bare `%s %s '%s'`", filepath.Base(path), args[0], p.code),
		do: func() error {
			out, err := exec.Command(path, args...).Output()
			if err != nil {
				return err
			}
			return p.check(string(out))
		},
		most: crew(),
	}
}

// single is how executions that wait for each other take turns.
var single = contest{turns: manyTurns, warm: 2, singly: true}

func measurePython(ctx context.Context, l lab, count int) (lines []line, err error) {
	const live = "s"
	ds, err := l.start(ctx, l.selfManaged(fmt.Sprintf("pool_size = %d", poolOfSix)))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	if err := ds.each(func(d *daemon) error { return d.inSession(pythonHello, live) }); err != nil {
		return nil, err
	}
	raw, err := newRawRunsc(ds[0], pythonHello, python, "-c")
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, raw) }()
	hello := bare(pythonHello, python, "-c")
	base := &side{hello.name, spaced(settle, hello.do)}
	oneShots := func(d *daemon) turn { return spaced(settle, func() error { return d.oneShot(pythonHello) }) }
	entries := []entry{
		{
			row: "python/fresh", what: "`POST /execute` of Python hello, fresh sandbox from a warm pool",
			ours: ds.sides(oneShots), beside: base, claims: []claim{ratio(p50).atMost(1)},
		},
		{
			row: "python/session", what: "`POST /execute` of Python hello, fresh interpreter in a live session",
			ours: ds.sides(func(d *daemon) turn {
				return spaced(settle, func() error { return d.inSession(pythonHello, live) })
			}),
			beside: base, claims: []claim{ratio(p50).atMost(1)},
		},
		{
			row: "python/runsc", what: "`runsc run` of Python hello, fresh sandbox",
			ours: []*side{{"runsc run", spaced(settle, raw.run)}}, beside: base, claims: []claim{ratio(p50)},
		},
	}
	if os.Geteuid() == 0 { // copies are for root only
		copies, failed := l.start(ctx, l.selfManaged(fmt.Sprintf("pool_size = %d\n  images = %q", poolOfSix, "always")))
		if failed != nil {
			return nil, failed
		}
		defer func() { err = joinStop(err, copies) }()
		entries = append(entries, entry{
			row: "python/images", what: "the first of these with `images = \"always\"`",
			ours: copies.sides(oneShots), beside: base, claims: []claim{ratio(p50)},
		})
	}
	return single.run(ctx, count, entries)
}

func measureNode(ctx context.Context, l lab, count int) ([]line, error) {
	return measureOneShot(ctx, l, count, "node/fresh", "Node hello", nodeHello, bare(nodeHello, node, "-e"), ratio(p50).atMost(0.5))
}

func measureBash(ctx context.Context, l lab, count int) ([]line, error) {
	return measureOneShot(ctx, l, count, "bash/fresh", "bash hello", bashHello, bare(bashHello, bash, "-c"), ratio(p50))
}

// measureOneShot measures a fresh sandbox beside the bare interpreter.
func measureOneShot(ctx context.Context, l lab, count int, row, name string, p program, base subject, claims ...claim) (lines []line, err error) {
	ds, err := l.start(ctx, l.selfManaged(fmt.Sprintf("pool_size = %d", poolOfSix)))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	return single.run(ctx, count, []entry{{
		row: row, what: "`POST /execute` of " + name + ", fresh sandbox from a warm pool",
		ours:   ds.sides(func(d *daemon) turn { return spaced(settle, func() error { return d.oneShot(p) }) }),
		beside: &side{base.name, spaced(settle, base.do)}, claims: claims,
	}})
}

// paced measures one-shots that come at a constant rate, in a fresh sandbox each. The
// bare interpreter has turns of its own at the same rate: between two one-shots it
// would share the processors with the sandbox that is made for the next one.
func paced(perSecond float64) func(ctx context.Context, l lab, count int) ([]line, error) {
	return func(ctx context.Context, l lab, count int) (lines []line, err error) {
		ds, err := l.start(ctx, l.selfManaged("")) // as an operator has it who sets nothing
		if err != nil {
			return nil, err
		}
		defer func() { err = joinStop(err, ds) }()
		claims := []claim{ratio(p50).atMost(0.8)}
		if perSecond <= 2 {
			claims = append(claims, ratio(p99).to(string(p50)).atMost(3))
		}
		base := bare(pythonHello, python, "-c")
		return contest{turns: manyTurns, warm: 2, rest: quiet}.run(ctx, count, []entry{{
			row:    fmt.Sprintf("paced/%g", perSecond),
			what:   fmt.Sprintf("`POST /execute` of Python hello, fresh sandbox, one begun every %g ms", ms(time.Second)/perSecond),
			ours:   ds.sides(func(d *daemon) turn { return steady(perSecond, func() error { return d.oneShot(pythonHello) }) }),
			beside: &side{base.name + " at the same rate", steady(perSecond, base.do)},
			claims: claims,
		}})
	}
}

// measureMixed measures executions in a session that come at a constant rate, while
// one-shots do too: making the sandboxes of these is what disturbs those.
func measureMixed(ctx context.Context, l lab, count int) (lines []line, err error) {
	const perSecond, oneShots = 5, 2
	ds, err := l.start(ctx, l.selfManaged(fmt.Sprintf("pool_size = %d", poolOfSix)))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	if err := ds.each(func(d *daemon) error { return d.inSession(pythonHello, session(0)) }); err != nil {
		return nil, err
	}
	beside := func(d *daemon) turn {
		return func(ctx context.Context, count int) (measured, error) {
			others := make(chan error, 1)
			go func() {
				_, err := steady(oneShots, func() error { return d.oneShot(pythonHello) })(ctx, count*oneShots/perSecond)
				others <- err
			}()
			m, err := steady(perSecond, func() error { return d.inSession(pythonHello, session(0)) })(ctx, count)
			return m, errors.Join(err, <-others)
		}
	}
	hello := bare(pythonHello, python, "-c")
	return contest{turns: manyTurns, warm: 5, rest: quiet}.run(ctx, count, []entry{{
		row:    "mixed",
		what:   fmt.Sprintf("`POST /execute` of Python hello in a live session, %d a second, beside %d one-shots a second in fresh sandboxes", perSecond, oneShots),
		ours:   ds.sides(beside),
		beside: &side{hello.name + " at the same rate, with nothing beside it", steady(perSecond, hello.do)},
		claims: []claim{ratio(p50), ratio(p95)},
	}})
}

// sessionsAtOnce is how many clients there are, with a session each.
const sessionsAtOnce = 4

func session(client int) string { return fmt.Sprintf("s%d", client) }

// measureSession has clients execute one after the other in a live session each,
// beside as many loops that start the bare interpreter.
func measureSession(ctx context.Context, l lab, count int) (lines []line, err error) {
	ds, err := l.start(ctx, l.selfManaged(fmt.Sprintf("pool_size = %d", poolOfSix)))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	for i := range sessionsAtOnce {
		if err := ds.each(func(d *daemon) error { return d.inSession(pythonHello, session(i)) }); err != nil {
			return nil, err
		}
	}
	const nodeSession = "node"
	if err := ds.each(func(d *daemon) error { return d.inSession(nodeHello, nodeSession) }); err != nil {
		return nil, err
	}
	bareNode := bare(nodeHello, node, "-e")
	hello := bare(pythonHello, python, "-c")
	sides := func(clients int) ([]*side, *side) {
		first := 3 * clients
		return ds.sides(func(d *daemon) turn {
			return sustained(clients, first, func(client int) error { return d.inSession(pythonHello, session(client)) })
		}), &side{hello.name + fmt.Sprintf(", %d in a loop each", clients), sustained(clients, first, func(int) error { return hello.do() })}
	}
	one, bareOne := sides(1)
	many, bareMany := sides(sessionsAtOnce)
	bareOne.name = hello.name + ", one after the other"
	return contest{turns: manyTurns, rest: quiet}.run(ctx, count, []entry{
		{
			row: "session/1", what: "`POST /execute` of Python hello in a live session, one after the other",
			ours: one, beside: bareOne, claims: []claim{ratio(p50).atMost(0.8), ratio(rate).atLeast(1)},
		},
		{
			row: "session/4", what: fmt.Sprintf("the same, %d clients with a session each", sessionsAtOnce),
			ours: many, beside: bareMany, claims: []claim{ratio(rate).atLeast(0.8)},
		},
		{
			row: "session/node", what: "`POST /execute` of Node hello in a live session, one after the other",
			ours: ds.sides(func(d *daemon) turn {
				return sustained(1, 3, func(int) error { return d.inSession(nodeHello, nodeSession) })
			}),
			beside: &side{bareNode.name + ", one after the other", sustained(1, 3, func(int) error { return bareNode.do() })},
			claims: []claim{ratio(p50), ratio(rate)},
		},
	})
}
