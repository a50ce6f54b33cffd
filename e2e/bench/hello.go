package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// settle is the pause before each measurement in a row of single executions: a
// pool that is full is what is measured there, and not how fast it is filled.
const settle = 250 * time.Millisecond

// poolOfSix is a pool that is larger than what one measurement takes.
const poolOfSix = `provider "self_managed" { pool_size = 6 }`

// subject is something to time.
type subject struct {
	name string
	do   func() error
}

// inTurn times subjects one after the other, count times each. The first two
// rounds warm caches and do not count.
func inTurn(ctx context.Context, count int, subjects []subject) ([]times, error) {
	all := make([]times, len(subjects))
	for round := range count + 2 {
		for i, s := range subjects {
			if err := wait(ctx, settle); err != nil {
				return nil, err
			}
			began := time.Now()
			if err := s.do(); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			if round >= 2 {
				all[i] = append(all[i], time.Since(began))
			}
		}
	}
	return all, nil
}

// bare runs a program of the machine as it is.
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
	}
}

// compare makes lines of the subjects beside the first of them.
func compare(subjects []subject, all []times) []line {
	lines := make([]line, 0, len(subjects))
	base := fmt.Sprintf("%s: %s", subjects[0].name, all[0])
	for i, s := range subjects[1:] {
		lines = append(lines, line{
			what: s.name, measured: all[i+1].String(), beside: base,
			compared: fmt.Sprintf("%.2fx at p50", ratio(all[i+1].percentile(50), all[0].percentile(50))),
		})
	}
	return lines
}

// aimAt judges a line by its median beside that of the first subject.
func aimAt(l *line, all []times, i int, most float64) {
	l.aim = fmt.Sprintf("<= %.1fx", most)
	l.met = judge(ratio(all[i].percentile(50), all[0].percentile(50)) <= most)
}

// worst99 is the aim for the slowest of a hundred fresh sandboxes.
const worst99 = 50 * time.Millisecond

func measurePython(ctx context.Context, l lab, count int) (lines []line, err error) {
	d, err := startDaemon(ctx, l, l.plugins(), poolOfSix)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, d) }()
	if err := d.inSession(pythonHello, "s"); err != nil {
		return nil, err
	}
	raw, err := newRawRunsc(d, pythonHello, python, "-c")
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, raw) }()
	subjects := []subject{
		bare(pythonHello, python, "-c"),
		{"`POST /execute` of Python hello, fresh sandbox from a warm pool", func() error { return d.oneShot(pythonHello) }},
		{"`POST /execute` of Python hello, fresh interpreter in a live session", func() error { return d.inSession(pythonHello, "s") }},
		{"`runsc run` of Python hello, fresh sandbox", raw.run},
	}
	if os.Geteuid() == 0 { // copies are for root only
		copies, failed := startDaemon(ctx, l, l.plugins(), "provider \"self_managed\" {\n  pool_size = 6\n  images = true\n}")
		if failed != nil {
			return nil, failed
		}
		defer func() { err = joinStop(err, copies) }()
		subjects = append(subjects, subject{"the first of these with `images = true`", func() error { return copies.oneShot(pythonHello) }})
	}
	all, err := inTurn(ctx, count, subjects)
	if err != nil {
		return nil, err
	}
	lines = compare(subjects, all)
	aimAt(&lines[0], all, 1, 1)
	lines[0].aim += ", p99 <= " + ms(worst99)
	lines[0].met = judge(lines[0].met == met && all[1].percentile(99) <= worst99)
	aimAt(&lines[1], all, 2, 1)
	return lines, nil
}

func measureNode(ctx context.Context, l lab, count int) ([]line, error) {
	return measureOneShot(ctx, l, count, "Node hello", nodeHello, bare(nodeHello, node, "-e"), 0.5)
}

func measureBash(ctx context.Context, l lab, count int) ([]line, error) {
	return measureOneShot(ctx, l, count, "bash hello", bashHello, bare(bashHello, bash, "-c"), 0)
}

// measureOneShot measures a fresh sandbox beside the bare interpreter. An aim of
// 0 is none.
func measureOneShot(ctx context.Context, l lab, count int, name string, p program, base subject, aim float64) (lines []line, err error) {
	d, err := startDaemon(ctx, l, l.plugins(), poolOfSix)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, d) }()
	subjects := []subject{base, {"`POST /execute` of " + name + ", fresh sandbox from a warm pool", func() error { return d.oneShot(p) }}}
	all, err := inTurn(ctx, count, subjects)
	if err != nil {
		return nil, err
	}
	lines = compare(subjects, all)
	if aim > 0 {
		aimAt(&lines[0], all, 1, aim)
	}
	return lines, nil
}
