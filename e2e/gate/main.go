// Gate runs the tests in the parts of .ci/parts.hcl, one part after the other, and says what came
// of them.
//
//	gate [-logs DIRECTORY]                       the gate, as `make test` runs it
//	gate -all [-part NAME]... [-resume]          all parts, or some, as `make test-all` runs them
//	gate -all -list                              the parts, and their last green runs
//	gate -report DIRECTORY                       the end of a run, once more
//
// It needs the programs of `make build runsc tools`. A run ends with each failed test and its first
// failing line, each flake, the skips by their reasons, the ten slowest tests, and the counts. It
// exits with 1 when a test failed, when a test did not run that should have, or when a part ran
// none.
//
// A failed test runs a second time, alone, at the end of its part; at most three do so in a run.
// One that passes then is a flake. Tests of safety, data races, panics and time-outs get no second
// run. The gate ends after an hour: what hangs prints its stacks.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	green, err := run(ctx, os.Stdout, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "gate:", err)
	}
	if err != nil || !green {
		os.Exit(1)
	}
}

// names is a flag that may be given more than once.
type names []string

func (n *names) String() string { return strings.Join(*n, " ") }

func (n *names) Set(value string) error {
	*n = append(*n, strings.Fields(value)...)
	return nil
}

// run does as the arguments say, and reports whether all tests passed.
func run(ctx context.Context, out io.Writer, args []string) (green bool, err error) {
	flags := flag.NewFlagSet("gate", flag.ContinueOnError)
	var parts names
	all := flags.Bool("all", false, "run all parts, whole")
	flags.Var(&parts, "part", "with -all, run this part; repeatable")
	listed := flags.Bool("list", false, "list the parts and run none")
	resume := flags.Bool("resume", false, "leave out parts that were green for this very tree")
	logs := flags.String("logs", "", "the directory for the events of the tests (default .cache/gate)")
	reported := flags.String("report", "", "report what a directory of events says, and run nothing")
	if err := flags.Parse(args); err != nil {
		return false, flag.ErrHelp
	}
	switch {
	case flags.NArg() > 0:
		return false, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case !*all && (len(parts) > 0 || *resume):
		return false, errors.New("-part and -resume go with -all")
	case *reported != "":
		return report(out, *reported, nil)
	}
	root, err := os.Getwd()
	if err != nil {
		return false, err
	}
	known, err := readParts(filepath.Join(root, ".ci", "parts.hcl"))
	if err != nil {
		return false, err
	}
	packages, err := testPackages(ctx, root)
	if err != nil {
		return false, err
	}
	chosen, err := choose(units(known, packages, !*all), parts)
	if err != nil {
		return false, err
	}
	if *listed {
		return true, list(ctx, out, root, chosen)
	}
	r := &runner{root: root, gate: !*all, out: out, logs: *logs}
	r.reruns.Store(maxReruns)
	if r.logs == "" {
		r.logs = filepath.Join(root, ".cache", "gate")
	}
	return r.all(ctx, chosen, *resume)
}

// choose returns the units with the names, or of the parts with the names.
func choose(all []unit, names []string) ([]unit, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []unit
	for _, name := range names {
		before := len(chosen)
		for _, u := range all {
			if u.name == name || u.Name == name {
				chosen = append(chosen, u)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("there is no part %q; -all -list lists them", name)
		}
	}
	return chosen, nil
}

// all runs the units and writes the report. A unit that fails does not stop those after it. In the
// gate a unit runs beside another one, unless its part says alone, and its output comes when it
// ends.
func (r *runner) all(ctx context.Context, chosen []unit, resume bool) (green bool, err error) {
	if r.gate {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, gateLimit, fmt.Errorf("the gate took more than %v", gateLimit))
		defer cancel()
	}
	commit, hash, err := tree(ctx, r.root)
	if err != nil {
		return false, err
	}
	if resume {
		if hash == "" {
			return false, errors.New("-resume: there are changes that are not committed")
		}
		chosen = slices.DeleteFunc(chosen, func(u unit) bool {
			rec, ok, _ := lastGreen(u.name)
			return ok && rec.Tree == hash
		})
	}
	if err := r.prepare(ctx, chosen); err != nil {
		return false, err
	}
	at := 1
	if r.gate {
		at = lanes
	}
	var mu sync.Mutex // guards r.out and failed
	var failed []string
	room, all := semaphore.NewWeighted(int64(at)), sync.WaitGroup{}
	for _, u := range chosen {
		width := int64(1)
		if u.Alone {
			width = int64(at)
		}
		if err := room.Acquire(ctx, width); err != nil {
			mu.Lock()
			failed = append(failed, u.name+": it did not run")
			mu.Unlock()
			continue
		}
		all.Go(func() {
			defer room.Release(width)
			j, shown := job{runner: r, out: r.out}, &bytes.Buffer{}
			if at > 1 {
				j.out = shown
			}
			began := time.Now()
			err := j.tests(ctx, u)
			took := time.Since(began)
			if err == nil && hash != "" && !r.gate {
				err = (record{commit, hash, took.Seconds(), began}).keep(u.name)
			}
			mu.Lock()
			defer mu.Unlock()
			_, _ = shown.WriteTo(r.out)
			if err != nil {
				failed = append(failed, fmt.Sprintf("%s: %v", u.name, err))
				return
			}
			fmt.Fprintf(r.out, "part %s: passed after %.0f s, with %.0f s of processor time\n", u.name, took.Seconds(), j.processors.Seconds())
		})
	}
	all.Wait()
	return r.end(chosen, failed)
}

// prepare makes what the units need, and compiles their tests.
func (r *runner) prepare(ctx context.Context, chosen []unit) error {
	j := job{runner: r, out: r.out}
	if err := os.MkdirAll(r.logs, 0o755); err != nil {
		return fmt.Errorf("make the directory of the events: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(r.logs, "*.json"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("remove the events of the run before: %w", err)
		}
	}
	var targets []string
	if !r.gate {
		for _, u := range chosen {
			targets = append(targets, u.Make...)
			if u.Racing {
				targets = append(targets, "race-programs")
			}
		}
		slices.Sort(targets)
		targets = slices.Compact(targets)
	}
	if len(targets) > 0 {
		if err := j.exec(ctx, r.root, append([]string{"make", "--no-print-directory"}, targets...)); err != nil {
			return fmt.Errorf("make what the parts need: %w", err)
		}
	}
	if err := j.download(ctx, chosen); err != nil {
		return err
	}
	began := time.Now()
	if err := j.compile(ctx, chosen); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "compiled the tests after %.0f s\n", time.Since(began).Seconds())
	return nil
}

// end writes the report of a run.
func (r *runner) end(chosen []unit, failed []string) (green bool, err error) {
	green = true
	// Fuzz targets write no events.
	if slices.ContainsFunc(chosen, func(u unit) bool { return !u.Fuzz }) {
		allowed, unread := r.allowedSkips()
		green, err = report(r.out, r.logs, allowed)
		if err = errors.Join(err, unread); err != nil {
			return false, err
		}
	}
	for _, why := range failed {
		fmt.Fprintln(r.out, "FAILED part", why)
	}
	return green && len(failed) == 0, nil
}

// allowedSkips are the reasons in .ci/skips, for a run of the gate in CI: there nothing that a test
// needs is missing. Elsewhere any reason will do.
func (r *runner) allowedSkips() ([]string, error) {
	if !r.gate || os.Getenv("CI") == "" {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(r.root, ".ci", "skips"))
	if err != nil {
		return nil, fmt.Errorf("read the reasons for which tests may be skipped: %w", err)
	}
	allowed := []string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			allowed = append(allowed, line)
		}
	}
	return allowed, nil
}
