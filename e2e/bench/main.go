// Command bench measures the whole system beside what it is compared with, in
// turn and in one run, so that a machine whose speed drifts does not favour
// either. `make bench` runs it as root or as an ordinary user, from the
// repository's root, and prints a table in Markdown.
//
// A figure never decides anything: the table says whether an aim is met, the exit
// code only whether all could be measured. Something that goes wrong on the way,
// such as an execution that fails, is an error.
//
// Each file named after a row measures that row; the others are what they share.
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
)

// row is a part of the table that is measured by itself.
type row struct {
	name    string
	count   int // of measurements, unless -n says otherwise
	measure func(ctx context.Context, l lab, count int) ([]line, error)
}

func rows() []row {
	return []row{
		{"python", 200, measurePython},
		{"node", 100, measureNode},
		{"bash", 100, measureBash},
		{"sustained", 180, measureSustained},
		{"docker", 40, measureDocker},
		{"concurrent", 100, measureConcurrent},
		{"idle", 200, measureIdle},
		{"overhead", 60000, measureOverhead},
		{"streams", 10000, measureStreams},
		{"transfer", 20, measureTransfer},
	}
}

// lab is where measurements take place.
type lab struct {
	// bin has what `make build` made.
	bin string
}

func main() {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	run := flag.String("run", "", "regular `expression`: measure only rows whose name it matches, of: "+strings.Join(names, ", "))
	count := flag.Int("n", 0, "`count` of measurements in each row; 0 for each row's own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, *run, *count)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench measures the rows whose name matches. A row that fails leaves the others
// to be measured.
func bench(ctx context.Context, expression string, count int) error {
	wanted, err := regexp.Compile(expression)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	l := lab{bin: bin}
	fmt.Printf("%s\n\n", describeMachine(ctx, l))
	fmt.Print(tableHead)
	var errs []error
	for _, r := range rows() {
		if !wanted.MatchString(r.name) || ctx.Err() != nil {
			continue
		}
		n := r.count
		if count > 0 {
			n = count
		}
		load := loadAverage()
		lines, err := r.measure(ctx, l, n)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, err))
			lines = append(lines, line{what: r.name, measured: "failed: the error is below"})
		}
		for _, line := range lines {
			fmt.Print(line.row(load))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}
