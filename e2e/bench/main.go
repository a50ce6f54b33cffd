// Command bench measures the whole system beside what it is compared with, in
// turn and in one run, so that a machine whose speed drifts does not favour
// either. `make bench` runs it as root or as an ordinary user, from the
// repository's root, and prints a table in Markdown.
//
// A figure never decides anything: the table says whether an aim is met, and whether
// that is more than noise; the exit code only whether all could be measured. Something
// that goes wrong on the way, such as an execution that fails, is an error.
//
// Start with rows, which lists what is measured. Each row makes entries: sides that
// take turns (turns.go), and what is claimed of them (lines.go). What figures are, and
// what is noise, is in figures.go; runs are kept and compared by results.go, and drawn
// as latency by load by curves.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// row is a part of the table that is measured by itself.
type row struct {
	name    string
	count   int // of measurements of each side, unless -n says otherwise
	measure func(ctx context.Context, l lab, count int) ([]line, error)
}

func rows() []row {
	return []row{
		{"python", 54, measurePython},
		{"node", 45, measureNode},
		{"bash", 45, measureBash},
		{"paced-2", 108, paced(2)},
		{"paced-5", 135, paced(5)},
		{"mixed", 225, measureMixed},
		{"session", 180, measureSession},
		{"fresh", 120, measureFresh},
		{"javascript", 72, measureJavaScript},
		{"sustained", 120, measureSustained},
		{"tenant", 120, measureTenant},
		{"docker", 40, measureDocker},
		{"concurrent", 100, measureConcurrent},
		{"idle", 100, measureIdle},
		{"transfer", 18, measureTransfer},
		{"audit", 4500, measureAudit},
		{"overhead", 60000, measureOverhead},
		{"streams", 9000, measureStreams},
		{"door-create", 45, measureDoorCreate},
		{"door-call", 9000, measureDoorCall},
		{"door-lines", 60000, measureDoorLines},
		{"ragflow", 45, measureRAGFlow},
	}
}

// options of a run.
type options struct {
	rows           string
	count          int
	bin, old       string
	held           int
	results, plots string
}

func main() {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	var o options
	flag.StringVar(&o.rows, "run", "", "regular `expression`: measure only rows whose name it matches, of: "+strings.Join(names, ", "))
	flag.IntVar(&o.count, "n", 0, "`count` of measurements in each row; 0 for each row's own")
	flag.StringVar(&o.bin, "bin", "bin", "`directory` of the binaries to measure, as `make build` makes it")
	flag.StringVar(&o.old, "old", "", "`directory` of older binaries, which take turns with these")
	flag.IntVar(&o.held, "held", 0, "`count` of sandboxes that the row idle holds; 0 for 100")
	flag.StringVar(&o.results, "json", "", "`file` to keep the figures in")
	flag.StringVar(&o.plots, "plots", "", "`directory` for plots of latency by load, which are measured after the rows")
	compare := flag.Bool("compare", false, "measure nothing, and compare two files: -compare OLD.json NEW.json")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch {
	case *compare:
		err = compareFiles(flag.Args())
	case flag.NArg() > 0:
		err = fmt.Errorf("unexpected arguments: %q", flag.Args())
	default:
		err = bench(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func compareFiles(paths []string) error {
	if len(paths) != 2 {
		return errors.New("-compare takes two files")
	}
	var both [2]results
	for i, path := range paths {
		var err error
		if both[i], err = loadResults(path); err != nil {
			return err
		}
	}
	fmt.Print(compareResults(both[0], both[1]))
	return nil
}

// bench measures the rows whose name matches. A row that fails leaves the others
// to be measured.
func bench(ctx context.Context, o options) error {
	wanted, err := regexp.Compile(o.rows)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	l, err := newLab(o)
	if err != nil {
		return err
	}
	kept := results{
		Format: resultsFormat, Date: time.Now().UTC().Format(time.RFC3339),
		Commit: firstLine(ctx, "git", "describe", "--tags", "--always", "--dirty"), Machine: describeMachine(ctx, l),
		Broker: l.builds[0].version(ctx),
	}
	fmt.Printf("%s Source %s, broker %s; load average %s.\n\n", kept.Machine, kept.Commit, kept.Broker, loadAverage())
	old := len(l.builds) > 1
	if old {
		fmt.Printf("Beside the older broker %s.\n\n", l.builds[1].version(ctx))
	}
	var errs []error
	headed := false
	for _, r := range rows() {
		if !wanted.MatchString(r.name) || ctx.Err() != nil {
			continue
		}
		if !headed {
			fmt.Print(tableHead(old))
			headed = true
		}
		n := r.count
		if o.count > 0 {
			n = o.count
		}
		load := loadAverage()
		lines, err := r.measure(ctx, l, n)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, err))
			lines = append(lines, line{Row: r.name, What: r.name, Note: "failed: the error is below"})
		}
		for _, line := range lines {
			line.Load = load
			fmt.Print(line.row(old))
			kept.Lines = append(kept.Lines, line)
		}
	}
	if o.plots != "" && ctx.Err() == nil {
		graphs, err := measureGraphs(ctx, l, o.plots)
		kept.Graphs, errs = graphs, append(errs, err)
	}
	if o.results != "" {
		errs = append(errs, kept.save(o.results))
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// lab is where measurements take place.
type lab struct {
	// builds are what is measured: the first, and perhaps an older one to compare
	// it with.
	builds []build
	runsc  string // the gVisor of all, "" where none was found
	held   int    // sandboxes that are held idle
}

// build is a directory that `make build` made.
type build struct{ name, bin string }

func newLab(o options) (lab, error) {
	l := lab{held: o.held}
	for _, b := range []build{{"new", o.bin}, {"old", o.old}} {
		if b.bin == "" {
			continue
		}
		var err error
		if b.bin, err = filepath.Abs(b.bin); err != nil {
			return l, err
		}
		if _, err := os.Stat(b.broker()); err != nil {
			return l, fmt.Errorf("no build is there: %w", err)
		}
		l.builds = append(l.builds, b)
	}
	l.runsc = findRunsc(l.builds[0])
	return l, nil
}

// newest is the lab without an older build.
func (l lab) newest() lab {
	l.builds = l.builds[:1]
	return l
}
