package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// outcome is the last result of a test, and how it got there.
type outcome struct {
	name    string // the package without the module, a space, and the test
	action  string // pass, fail or skip
	failed  int    // runs that failed
	elapsed time.Duration
	reason  string // the first line that the test printed in its first failed run, or at its skip
	output  []string
}

// report writes the summary of all files of events in dir. allowed are the reasons for which tests
// may be skipped; nil allows all.
func report(w io.Writer, dir string, allowed []string) (green bool, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return false, fmt.Errorf("find events: %w", err)
	}
	if len(files) == 0 {
		return false, fmt.Errorf("%s has no events of tests", dir)
	}
	green = true
	var all []*outcome
	for _, file := range files {
		part, err := read(file)
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(part, func(o *outcome) bool { return o.action == "pass" && !o.isPackage() }) {
			fmt.Fprintf(w, "part %s: no test passed\n", strings.TrimSuffix(filepath.Base(file), ".json"))
			green = false
		}
		all = append(all, part...)
	}
	return summarize(w, all, allowed) && green, nil
}

func (o *outcome) isPackage() bool { return strings.HasSuffix(o.name, " ") }

// read returns the outcomes of the packages and tests of one part, in the order of their start.
func read(file string) ([]*outcome, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer f.Close()
	var order []*outcome
	byName := map[string]*outcome{}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Package != "" {
				name := strings.TrimPrefix(e.Package, "github.com/sandbox-broker/sandbox-broker/") + " " + e.Test
				o := byName[name]
				if o == nil {
					o = &outcome{name: name}
					byName[name] = o
					order = append(order, o)
				}
				o.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			for _, o := range order {
				if o.action == "" {
					o.reason = "it did not end"
				}
			}
			return order, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
}

// keptOutput is how many lines of a test are kept until its result is known.
const keptOutput = 200

// take applies the next event of the test.
func (o *outcome) take(e event) {
	switch e.Action {
	case "run":
		o.output, o.action = nil, ""
	case "output":
		if len(o.output) < keptOutput {
			o.output = append(o.output, e.Output)
		}
	case "pass", "fail", "skip":
		o.action = e.Action
		o.elapsed = time.Duration(e.Elapsed * float64(time.Second))
		if e.Action == "fail" {
			o.failed++
		}
		if e.Action != "pass" && o.reason == "" {
			o.reason = reason(o.output)
		}
		o.output = nil
	}
}

// reason is the first line of a test's output that is not the frame of go test or a line of a log.
func reason(output []string) string {
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "{") || line == "FAIL" {
			continue
		}
		return line
	}
	return ""
}

// place is where a test was skipped.
var place = regexp.MustCompile(`^[A-Za-z0-9_]+\.go:[0-9]+: `)

// explained are the names of what failed because something below it did: a parent because a subtest
// did, and a package because a test did.
func explained(all []*outcome) map[string]bool {
	names := map[string]bool{}
	for _, o := range all {
		if o.failed == 0 && o.action != "" || o.isPackage() {
			continue
		}
		of, test, _ := strings.Cut(o.name, " ")
		names[of+" "] = true
		for i := range test {
			if test[i] == '/' {
				names[of+" "+test[:i]] = true
			}
		}
	}
	return names
}

// flakes are the tests that failed, and passed the second time.
func flakes(all []*outcome) (some []*outcome) {
	names := explained(all)
	for _, o := range all {
		if o.action == "pass" && o.failed > 0 && !o.isPackage() && !names[o.name] {
			some = append(some, o)
		}
	}
	return some
}

// summarize writes the summary and reports whether no test failed, and none was skipped for another
// reason than those allowed.
func summarize(w io.Writer, all []*outcome, allowed []string) (green bool) {
	var passed, failed, skipped int
	skips := map[string]int{}
	var failures, tests []*outcome
	explained := explained(all)
	for _, o := range all {
		if o.isPackage() {
			// It fails by itself when it does not build, runs out of time, or leaks.
			if o.action == "fail" && !explained[o.name] {
				failures, failed = append(failures, o), failed+1
			}
			continue
		}
		if _, test, _ := strings.Cut(o.name, " "); !strings.Contains(test, "/") {
			tests = append(tests, o)
		}
		switch o.action {
		case "pass":
			passed++
		case "skip":
			skipped++
			skips[place.ReplaceAllString(o.reason, "")]++
		default: // it failed, or never ended
			failed++
			if !explained[o.name] {
				failures = append(failures, o)
			}
		}
	}
	fmt.Fprintln(w, "\nSkipped:")
	others := 0
	for _, why := range sortedKeys(skips) {
		mark := " "
		if allowed != nil && !slices.Contains(allowed, why) {
			mark, others = "!", others+1
		}
		fmt.Fprintf(w, "%s %4d  %s\n", mark, skips[why], short(why))
	}
	slices.SortStableFunc(tests, func(a, b *outcome) int { return int(b.elapsed - a.elapsed) })
	fmt.Fprintln(w, "\nSlowest tests:")
	for _, o := range tests[:min(10, len(tests))] {
		fmt.Fprintf(w, "  %7.1f s  %s\n", o.elapsed.Seconds(), o.name)
	}
	for _, o := range flakes(all) {
		fmt.Fprintf(w, "\nFLAKE %s\n  %s\n", o.name, short(o.reason))
	}
	for _, o := range failures {
		fmt.Fprintf(w, "\nFAILED %s\n  %s\n", strings.TrimSpace(o.name), short(o.reason))
	}
	if others > 0 {
		fmt.Fprintf(w, "\nFAILED: tests were skipped for %d reasons that .ci/skips does not list; they are marked with !\n", others)
	}
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed == 0 && others == 0
}

func short(line string) string {
	if len(line) > 200 {
		return line[:200] + "..."
	}
	if line == "" {
		return "(it printed nothing)"
	}
	return line
}

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
