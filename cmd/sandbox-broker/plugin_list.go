package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
)

type pluginListCommand struct {
	Dir    string `arg:"" optional:"" help:"The directory of plugins. By default that of the configuration, which is the one beside this program unless it says another."`
	Config string `short:"c" default:"sandbox.hcl" help:"The configuration file that says which directory." placeholder:"FILE"`
}

// Run starts every file of the directory for a moment, as the broker would, and
// prints what it is or why it is refused.
func (c *pluginListCommand) Run(ctx context.Context, term *terminal) error {
	dir, err := c.directory(term)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	plugins, err := openPlugins(dir)
	if err != nil {
		return err
	}
	defer plugins.close()
	w := tabwriter.NewWriter(term.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "PLUGIN\tNAME\tVERSION\tSUMMARY\n")
	count := 0
	for _, entry := range entries {
		if entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		count++
		d, err := plugins.describe(ctx, entry.Name())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(w, "%s\t-\t-\trefused: %s\n", shown(entry.Name()), shown(startRefusal(entry.Name(), err)))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", shown(entry.Name()), shown(d.Name), shown(d.Version), shown(d.Summary))
	}
	if count == 0 {
		_, err := fmt.Fprintf(term.out, "There is no file in %s.\n", dir)
		return err
	}
	return w.Flush()
}

// directory is the one that was named, else that of the configuration, if there is
// one.
func (c *pluginListCommand) directory(term *terminal) (string, error) {
	if c.Dir != "" {
		return c.Dir, nil
	}
	if _, err := os.Stat(c.Config); errors.Is(err, fs.ErrNotExist) {
		return config.DefaultPluginDir()
	}
	cfg, diags := config.Load(c.Config)
	if cfg != nil && cfg.PluginDir != "" {
		return cfg.PluginDir, nil
	}
	if err := diags.Write(term.err, term.style); err != nil {
		return "", err
	}
	return "", fmt.Errorf("%s does not say where the plugins are", c.Config)
}

// startRefusal is why a plugin does not start, without the name that the line begins with.
func startRefusal(name string, err error) string {
	launch, ok := errors.AsType[*pluginhost.LaunchError](err)
	if !ok {
		return err.Error()
	}
	text := strings.TrimPrefix(launch.Public.Message, fmt.Sprintf("provider %q: ", name))
	if launch.Detail != "" {
		text += " (" + launch.Detail + ")"
	}
	if said := pluginhost.LastWord(err); said != "" {
		text += "; it said: " + said
	}
	return text
}
