// Command live runs the conformance suite, and a round through the broker, against the
// real service of a provider, within limits of time and money, and writes a report that
// holds no secrets. `make live` starts it.
//
// Whatever it makes carries the ID of a broker, and each such ID is on disk in the ledger
// before anything can be made with it. So what a run has left that was killed, the next
// one removes, and so does -clean.
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

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

// Exit codes: something failed or was stopped, there is no key, and the command was
// called wrongly.
const (
	exitFailed = 1
	exitNoKey  = 2
	exitUsage  = 64
)

const (
	// cleaningTime bounds the removal of what was left, before a run and after it.
	cleaningTime = 5 * time.Minute
	// mostMinutes bounds a run whatever is asked for.
	mostMinutes = 24 * 60
	// runDir begins the names of directories that a run needs for itself.
	runDir = "run-"
)

var errCleaningTime = fmt.Errorf("the removal was not done within %v", cleaningTime)

type options struct {
	provider, bin, dir, cases string
	minutes, spend, price     float64
	clean                     bool
}

func main() {
	watchdog.Main()
	var o options
	flags := flag.NewFlagSet("live", flag.ContinueOnError)
	flags.StringVar(&o.provider, "provider", "", "e2b, daytona or aliyun")
	flags.StringVar(&o.bin, "bin", "bin", "where make build has put the binaries")
	flags.StringVar(&o.dir, "dir", "data/live", "where the ledger and the reports are")
	flags.StringVar(&o.cases, "cases", ".", "run the cases of the suite whose names match")
	flags.Float64Var(&o.minutes, "minutes", 20, "end the run after so many minutes")
	flags.Float64Var(&o.spend, "spend", 1, "end the run when its sandboxes should have cost so much")
	flags.Float64Var(&o.price, "price", 0, "what a second of a sandbox costs; 0 for what the provider says, or a guess")
	flags.BoolVar(&o.clean, "clean", false, "only remove what earlier runs have left")
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(exitUsage) // it has said why
	}
	// A terminal that goes away ends the run in order too. Without a reader of what it
	// prints it goes on, to clean up; to ignore the signal would be inherited.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second signal kills
	code := run(ctx, o)
	stop()
	os.Exit(code)
}

// problem says what cannot be meant: a limit that is none, above all.
func (o options) problem() error {
	switch {
	case !(o.minutes > 0 && o.minutes <= mostMinutes): // which no NaN is
		return fmt.Errorf("MINUTES is %g: it must be above 0 and at most %d", o.minutes, mostMinutes)
	case !(o.spend > 0 && o.spend <= 1e6):
		return fmt.Errorf("SPEND is %g: it must be above 0 and at most a million", o.spend)
	case !(o.price >= 0 && o.price <= 1000):
		return fmt.Errorf("PRICE is %g: it must be from 0, for the one that is known, to 1000", o.price)
	}
	return nil
}

func run(ctx context.Context, o options) int {
	cloud, err := cloudOf(o.provider)
	cases, badCases := regexp.Compile(o.cases)
	if err := errors.Join(err, badCases, o.problem()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitUsage
	}
	if missing := cloud.missing(); len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "There is no key for %s: set %s in the environment. Nothing was run, and nothing is charged.\n", o.provider, strings.Join(missing, ", "))
		return exitNoKey
	}
	clean := cleaner{redact.New(cloud.secrets()...)}
	code, err := guarded(ctx, o, cloud, cases, clean)
	if err != nil {
		fmt.Fprintln(os.Stderr, clean.text(err.Error()))
		return exitFailed
	}
	return code
}

// guarded runs as the only one in its directory: another run there would take our
// sandboxes for ones that were left.
func guarded(ctx context.Context, o options, cloud cloud, cases *regexp.Regexp, clean cleaner) (int, error) {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return 0, err
	}
	dir, err := os.Open(o.dir)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return 0, fmt.Errorf("another live run is going on in %s, or its end is: %w", o.dir, err)
	}
	left, err := filepath.Glob(filepath.Join(o.dir, runDir+"*"))
	if err != nil {
		return 0, err
	}
	for _, of := range left { // one that was killed
		if err := os.RemoveAll(of); err != nil {
			return 0, err
		}
	}
	plugin, err := newPlugin(filepath.Join(o.bin, "plugins", o.provider), o.dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = plugin.launcher.Close() }() // a directory left behind is swept at the next start
	say := func(format string, args ...any) { fmt.Println(clean.text(fmt.Sprintf(format, args...))) }
	ledger := ledger{filepath.Join(o.dir, o.provider+".ledger")}
	elsewhere, err := plugin.clean(ctx, cloud, ledger, say, false)
	if err != nil {
		return 0, fmt.Errorf("remove what earlier runs have left: %w", err)
	}
	if elsewhere > 0 {
		say("%s has %d entries of another account or address, whose sandboxes cannot be seen from here: run make live-clean with its variables, or delete the file if there is nothing left", ledger.file, elsewhere)
	}
	switch {
	case o.clean && elsewhere > 0:
		return exitFailed, nil
	case o.clean:
		say("Nothing is left of earlier runs.")
		return 0, nil
	}
	return measure(ctx, o, cloud, plugin, ledger, cases, clean)
}

// measure runs everything, removes what is left, and writes the report.
func measure(ctx context.Context, o options, cloud cloud, plugin *plugin, ledger ledger, cases *regexp.Regexp, clean cleaner) (int, error) {
	say := func(format string, args ...any) { fmt.Println(clean.text(fmt.Sprintf(format, args...))) }
	schema, err := plugin.schema(ctx)
	if err != nil {
		return 0, err
	}
	price := priceOf(o.price, o.provider, schema, cloud)
	say("This run ends after %g minutes, or when its sandboxes should have cost %g, at %v.", o.minutes, o.spend, price)

	limit := time.Duration(o.minutes * float64(time.Minute))
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the %g minutes were over", o.minutes))
	defer cancel()
	bounded, stop := context.WithCancelCause(bounded)
	defer stop(nil)
	bill := &bill{price: price.perSecond, most: o.spend, over: func() { stop(fmt.Errorf("the budget of %g was spent", o.spend)) }}
	go bill.watch(bounded)

	r := report{
		Provider: o.provider, Started: time.Now().UTC(), Budget: o.spend, Minutes: o.minutes,
		PricePerSecond: price.perSecond, Currency: price.currency, PriceSource: price.source,
	}
	r.Suite = providertest.Verify(bounded, plugin.opener(cloud.place(), ledger, bill),
		providertest.WithSettings(cloud.settings()), providertest.WithPatience(5), providertest.WithOnly(cases),
		providertest.WithProgress(func(c providertest.Result) { say("%-7s %s (%.1fs)", c.Status, c.Case, c.Duration.Seconds()) }))
	if bounded.Err() == nil {
		r.Broker = throughBroker(bounded, o, cloud, ledger, bill, clean)
	}
	switch {
	case ctx.Err() != nil:
		r.Stopped = "a signal ended the run"
	case bounded.Err() != nil:
		r.Stopped = context.Cause(bounded).Error()
	}
	// A run that was stopped may have left a creation at the service, which comes later:
	// the ledger is kept, so that the next one looks again.
	if _, err := plugin.clean(context.WithoutCancel(ctx), cloud, ledger, say, r.Stopped == ""); err != nil {
		r.Left = err.Error()
	}
	r.Seconds = time.Since(r.Started).Seconds()
	r.SandboxSeconds, r.Cost = bill.total()
	file, err := r.write(o.dir, clean)
	if err != nil {
		return 0, err
	}
	say("%s; the broker: %s; %.0f seconds of sandboxes, about %.4f of %g at %v; report: %s", r.Suite.Summary(), r.brokerSummary(), r.SandboxSeconds, r.Cost, o.spend, price, file)
	if r.Stopped != "" {
		say("stopped: %s; make live-clean looks once more for what may come late", r.Stopped)
	}
	if r.Left != "" {
		say("SOMETHING MAY BE LEFT, and may cost: %s; make live-clean removes it", r.Left)
	}
	if r.failed() {
		return exitFailed, nil
	}
	return 0, nil
}
