// Command release makes of built programs what is published: Debian packages, a tarball, lists
// of what is in each program, contexts for images, and checksums of all of it. It is a module
// of its own, so that what packs the broker is not among what the broker is made of.
//
// It builds no programs and runs none: `make packages` and `make release` do, before. The
// files that go into packages and images beside the programs are below debian and images.
// The same programs, version and time make the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var r release
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: release [flags] packages|images|all")
		flags.PrintDefaults()
	}
	flags.StringVar(&r.root, "root", "../..", "the directory of the repository")
	flags.StringVar(&r.bin, "bin", "", "the directory of the programs; bin in that of the repository unless given")
	flags.StringVar(&r.out, "out", "", "the directory to write to; dist in that of the repository unless given")
	version := flags.String("version", "", "what `git describe --tags --always --dirty` says")
	epoch := flags.String("epoch", os.Getenv("SOURCE_DATE_EPOCH"), "the time that files have, in seconds since 1970")
	flags.StringVar(&r.arch, "arch", runtime.GOARCH, "the architecture of the programs, as Go calls it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(*epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("-epoch or SOURCE_DATE_EPOCH must be a number of seconds: %w", err)
	}
	r.time = time.Unix(seconds, 0).UTC()
	if r.version, err = versionOf(*version, r.time); err != nil {
		return err
	}
	if err := r.complete(); err != nil {
		return err
	}
	var steps []func() error
	switch flags.Arg(0) {
	case "packages":
		steps = []func() error{r.packages}
	case "images":
		steps = []func() error{r.contexts}
	case "all":
		steps = []func() error{r.packages, r.tarball, r.contexts, r.boms, r.checksums}
	default:
		flags.Usage()
		return fmt.Errorf("say what to make: packages, images or all")
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
