package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// pluginVerifyCommand runs the conformance suite against an executable.
type pluginVerifyCommand struct {
	Path     string `arg:"" help:"The plugin's executable."`
	Config   string `short:"c" help:"A file with the provider block that the plugin gets; a whole configuration will do." placeholder:"FILE"`
	Provider string `help:"The label of the provider block, where the file has several." placeholder:"LABEL"`

	Only     string   `name:"run" help:"Run only the cases whose name matches." placeholder:"REGEXP"`
	Skip     []string `help:"Skip the cases whose name matches, with a reason. May be repeated." placeholder:"REGEXP=REASON" sep:"none"`
	ListOnly bool     `name:"list" help:"List the cases and run none."`
	JSON     bool     `help:"Print a report in JSON when all has run."`

	Patience    float64 `default:"1" help:"Multiply all time limits, for a provider that is slow."`
	MemoryLimit int64   `help:"How many MiB code in an instance can use. Cases then use more." placeholder:"MIB"`
	Break       string  `help:"A shell command that takes the back end away, for the cases about that." placeholder:"COMMAND"`
	Repair      string  `help:"A shell command that brings the back end back." placeholder:"COMMAND"`
	ShowLog     bool    `help:"Show what the plugin logs, on standard error. It may hold secrets if the plugin logs them."`
}

// Run prints a line for each case; exit code 1 says that one failed.
func (c *pluginVerifyCommand) Run(ctx context.Context, term *terminal) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	options, err := c.options()
	if err != nil {
		return err
	}
	if c.ListOnly {
		return c.list(term.out, options)
	}
	verified, err := c.open(term.err)
	if err != nil {
		return err
	}
	defer func() { _ = verified.close() }() // a directory left behind is swept at the next start
	settings, diags, err := c.settings(ctx, verified)
	if err != nil {
		return err
	}
	if diags.HasErrors() {
		if err := diags.Write(term.err, term.style); err != nil {
			return err
		}
		return exitCode(1)
	}
	options = append(options, providertest.WithSettings(settings))
	if !c.JSON {
		options = append(options, providertest.WithProgress(func(r providertest.Result) { printResult(term.out, r) }))
	}
	report := providertest.Verify(ctx, verified.start, options...)
	return c.finish(term.out, report)
}

func (c *pluginVerifyCommand) finish(out io.Writer, report providertest.Report) error {
	var err error
	if c.JSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(report)
	} else {
		_, err = fmt.Fprintln(out, report.Summary())
	}
	switch {
	case err != nil:
		return err
	case report.Failed > 0:
		return exitCode(1)
	case len(report.Cases) == 0:
		return fmt.Errorf("no case matches --run %q", c.Only)
	case report.Passed == 0:
		return errors.New("every case was skipped, which shows nothing")
	default:
		return nil
	}
}

// printResult prints one line, and the reason of a failure below it.
func printResult(out io.Writer, r providertest.Result) {
	switch r.Status {
	case providertest.Passed:
		fmt.Fprintf(out, "ok    %s (%.2fs)\n", r.Case, r.Duration.Seconds())
	case providertest.Skipped:
		fmt.Fprintf(out, "skip  %s: %s\n", r.Case, oneLine(r.Reason))
	case providertest.Failed:
		fmt.Fprintf(out, "FAIL  %s (%.2fs)\n      %s\n", r.Case, r.Duration.Seconds(), strings.ReplaceAll(r.Reason, "\n", "\n      "))
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func (c *pluginVerifyCommand) list(out io.Writer, options []providertest.Option) error {
	for _, one := range providertest.Cases(options...) {
		if _, err := fmt.Fprintln(out, one); err != nil {
			return err
		}
	}
	return nil
}

// options are those that need no process.
func (c *pluginVerifyCommand) options() ([]providertest.Option, error) {
	if c.Patience <= 0 {
		return nil, errors.New("--patience must be positive")
	}
	options := []providertest.Option{providertest.WithPatience(c.Patience)}
	if c.Only != "" {
		cases, err := regexp.Compile(c.Only)
		if err != nil {
			return nil, fmt.Errorf("--run: %w", err)
		}
		options = append(options, providertest.WithOnly(cases))
	}
	for _, text := range c.Skip {
		pattern, reason, _ := strings.Cut(text, "=")
		cases, err := regexp.Compile(pattern)
		switch {
		case err != nil:
			return nil, fmt.Errorf("--skip: %w", err)
		case strings.TrimSpace(reason) == "":
			return nil, fmt.Errorf("--skip %q has no reason: write REGEXP=REASON", text)
		}
		options = append(options, providertest.WithSkip(cases, reason))
	}
	if c.MemoryLimit > 0 {
		options = append(options, providertest.WithMemoryLimit(c.MemoryLimit<<20))
	}
	switch {
	case (c.Break == "") != (c.Repair == ""):
		return nil, errors.New("--break and --repair go together")
	case c.Break != "":
		options = append(options, providertest.WithBreakage(shellBreakage(c.Break, c.Repair)))
	}
	return options, nil
}

// settings reads the provider block; only the plugin knows what may stand there.
func (c *pluginVerifyCommand) settings(ctx context.Context, verified *verifiedPlugin) (sdk.Settings, config.Diagnostics, error) {
	if c.Config == "" {
		return nil, nil, nil
	}
	blocks, diags := config.LoadProviders(c.Config)
	if diags.HasErrors() {
		return nil, diags, nil
	}
	block, err := c.chosen(blocks)
	if err != nil {
		return nil, nil, err
	}
	verified.spec.SHA256, verified.spec.Env = block.SHA256, block.Env
	description, err := verified.describe(ctx)
	if err != nil {
		return nil, block.Diagnose(err, nil), nil
	}
	settings, diags := block.Settings(description.Schema)
	return settings, diags, nil
}

func (c *pluginVerifyCommand) chosen(blocks []*config.Provider) (*config.Provider, error) {
	labels := make([]string, len(blocks))
	for i, b := range blocks {
		labels[i] = b.Label
	}
	at := slices.Index(labels, c.Provider)
	switch {
	case c.Provider != "" && at < 0:
		return nil, fmt.Errorf("%s has no provider block %q; it has %s", c.Config, c.Provider, strings.Join(labels, ", "))
	case c.Provider == "" && len(blocks) > 1:
		return nil, fmt.Errorf("%s has several provider blocks; choose one of them with --provider: %s", c.Config, strings.Join(labels, ", "))
	case c.Provider == "":
		return blocks[0], nil
	default:
		return blocks[at], nil
	}
}

// open prepares what starts the plugin.
func (c *pluginVerifyCommand) open(log io.Writer) (*verifiedPlugin, error) {
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return nil, err
	}
	if !c.ShowLog {
		log = io.Discard
	}
	timeout := time.Duration(c.Patience * float64(10*time.Second))
	return newVerifiedPlugin(path, timeout, log)
}
