package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// describe starts the plugin of a provider block, asks what it is and what is wrong
// with the settings of the block, and stops it. A nil describe means that no plugins are started, so that the settings which
// only they know stay unchecked.
type describe func(ctx context.Context, cfg *config.Config, p *config.Provider) (sdk.Description, config.Diagnostics, error)

// describeTimeout bounds one plugin's start, description and stop.
const describeTimeout = 20 * time.Second

type checkCommand struct {
	configFile
	JSON bool `name:"json" help:"Print what was found as JSON, on standard output."`
}

// Run shows every mistake on standard error; exit code 1 says that there is one.
func (c *checkCommand) Run(ctx context.Context, term *terminal, ask describe) error {
	cfg, diags := config.Load(c.name())
	diags = diags.With(checkProviders(ctx, ask, cfg))
	if c.JSON {
		return c.printJSON(term, cfg, diags)
	}
	if err := diags.Write(term.err, term.style); err != nil {
		return err
	}
	if diags.HasErrors() {
		fmt.Fprintf(term.err, "\n%s: %s\n", c.name(), counted(errorsIn(diags), "mistake"))
		return exitCode(1)
	}
	_, err := fmt.Fprintf(term.out, "%s: ok (%s, %s, listening on %s)\n",
		c.name(), counted(len(cfg.Providers), "provider"), counted(len(cfg.Tenants), "tenant"), cfg.Listen)
	if err == nil && ask == nil {
		_, err = fmt.Fprintln(term.out, "The settings of the providers were not checked: no plugin was started.")
	}
	return err
}

// checkReport is what check --json prints.
type checkReport struct {
	// OK says that the broker would take the configuration.
	OK bool `json:"ok"`
	// Revision of what was read; see config.Config.
	Revision    string             `json:"revision"`
	Files       []string           `json:"files"`
	Diagnostics config.Diagnostics `json:"diagnostics"`
}

func (c *checkCommand) printJSON(term *terminal, cfg *config.Config, diags config.Diagnostics) error {
	report := checkReport{OK: !diags.HasErrors(), Revision: cfg.Revision, Files: []string{}, Diagnostics: diags}
	for _, f := range cfg.Files() {
		if f.Kind == config.FileMain || f.Kind == config.FileIncluded {
			report.Files = append(report.Files, f.Name)
		}
	}
	if diags == nil {
		report.Diagnostics = config.Diagnostics{}
	}
	encoder := json.NewEncoder(term.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(report); err != nil {
		return err
	}
	if diags.HasErrors() {
		return exitCode(1)
	}
	return nil
}

// checkProviders checks the settings that only the plugins know, as far as the
// file can be read.
func checkProviders(ctx context.Context, ask describe, cfg *config.Config) config.Diagnostics {
	if cfg.PluginDir == "" || ask == nil {
		return nil
	}
	var diags config.Diagnostics
	for _, p := range cfg.Providers {
		diags = diags.With(checkSettings(ctx, ask, cfg, p))
	}
	return diags
}

func checkSettings(ctx context.Context, ask describe, cfg *config.Config, p *config.Provider) config.Diagnostics {
	_, diags, err := describeWithin(ctx, ask, cfg, p)
	if err != nil {
		return p.Diagnose(err, nil)
	}
	return diags
}

// describeWithin asks a plugin within describeTimeout.
func describeWithin(ctx context.Context, ask describe, cfg *config.Config, p *config.Provider) (sdk.Description, config.Diagnostics, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	return ask(ctx, cfg, p)
}

func errorsIn(diags config.Diagnostics) int {
	n := 0
	for _, d := range diags {
		if d.Severity == config.SeverityError {
			n++
		}
	}
	return n
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
