package main

import (
	"context"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/reference"
)

// configCommand has the commands for who writes configurations, and those that look at and
// change that of a broker that runs.
type configCommand struct {
	Schema schemaCommand `cmd:"" help:"Print what may stand in a configuration, as JSON Schema."`
	Fmt    formatCommand `cmd:"" help:"Lay out configuration files as everybody does."`
	Import importCommand `cmd:"" help:"Make blocks of the settings of another system."`
	remote.Config
}

type schemaCommand struct {
	configFlag
	File     string `arg:"" optional:"" help:"A configuration file, whose plugins are asked for their settings; without it, only the broker's own are told."`
	Markdown bool   `help:"Print a page for people instead."`
}

// Validate is what kong asks before the command runs.
func (c *schemaCommand) Validate() error {
	if c.File == "" {
		return nil
	}
	return c.agrees(c.File)
}

// Run prints the schema. A plugin that does not answer is told on standard error;
// of its block the schema then has only what is the broker's.
func (c *schemaCommand) Run(ctx context.Context, term *terminal, ask describe) error {
	var providers []reference.Provider
	file, named := c.File, c.File != ""
	if c.Config != nil {
		file, named = *c.Config, true
	}
	if named {
		cfg, diags := config.Load(file)
		if diags.HasErrors() {
			if err := diags.Write(term.err, term.style); err != nil {
				return err
			}
			return exitCode(1)
		}
		providers = askAll(ctx, term, ask, cfg)
	}
	if c.Markdown {
		_, err := fmt.Fprint(term.out, reference.Markdown(config.Blocks(), providers))
		return err
	}
	schema, err := reference.JSONSchema(config.Blocks(), providers)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(term.out, "%s\n", schema)
	return err
}

func askAll(ctx context.Context, term *terminal, ask describe, cfg *config.Config) []reference.Provider {
	var providers []reference.Provider
	for _, p := range cfg.Providers {
		if ask == nil {
			continue
		}
		description, _, err := describeWithin(ctx, ask, cfg, p)
		if err == nil {
			err = description.Schema.Validate()
		}
		if err != nil {
			fmt.Fprintf(term.err, "The settings of provider %q are not known: %v\n", p.Label, err)
			continue
		}
		providers = append(providers, reference.Provider{Label: p.Label, Plugin: p.Plugin, Schema: description.Schema})
	}
	return providers
}
