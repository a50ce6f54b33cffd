package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// pluginsOf starts the plugins of a directory to ask what they are. What they log is
// not for people who ask that.
type pluginsOf struct{ launcher *pluginhost.Launcher }

func openPlugins(dir string) (*pluginsOf, error) {
	launcher, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{
		PluginDir: dir, Watchdog: thisProgram, Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
	})
	if err != nil {
		return nil, err
	}
	return &pluginsOf{launcher}, nil
}

func (p *pluginsOf) close() { _ = p.launcher.Close() } // a directory left behind is swept at the next start

// describe starts the plugin of that name, and stops it. It gets neither settings nor
// variables beyond the usual ones.
func (p *pluginsOf) describe(ctx context.Context, name string) (sdk.Description, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	process, err := p.launcher.Launch(ctx, pluginhost.Spec{Label: name, Plugin: name})
	if err != nil {
		return sdk.Description{}, pluginhost.WithLastWords(err)
	}
	defer process.Stop(ctx)
	return process.Provider().Describe(), nil
}

// describeFile asks the plugin at a path.
func describeFile(ctx context.Context, path string) (sdk.Description, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return sdk.Description{}, err
	}
	plugins, err := openPlugins(filepath.Dir(path))
	if err != nil {
		return sdk.Description{}, err
	}
	defer plugins.close()
	return plugins.describe(ctx, filepath.Base(path))
}

type pluginDescribeCommand struct {
	Path string `arg:"" help:"The plugin's executable."`
	JSON bool   `help:"Print the description in JSON."`
}

// Run starts the plugin and prints what it says of itself.
func (c *pluginDescribeCommand) Run(ctx context.Context, term *terminal) error {
	description, err := describeFile(ctx, c.Path)
	if err != nil {
		return err
	}
	if c.JSON {
		encoder := json.NewEncoder(term.out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(newDescriptionJSON(description))
	}
	return writeDescription(term.out, description)
}

type pluginDocsCommand struct {
	Path   string `arg:"" help:"The plugin's executable."`
	Update string `help:"Write the generated sections of this page anew, instead of printing a whole page." placeholder:"FILE" type:"existingfile"`
}

// Run prints a page, or keeps one true.
func (c *pluginDocsCommand) Run(ctx context.Context, term *terminal) error {
	description, err := describeFile(ctx, c.Path)
	if err != nil {
		return err
	}
	if c.Update != "" {
		return updatePage(c.Update, description)
	}
	_, err = io.WriteString(term.out, markdown.Provider(description))
	return err
}

// writeDescription prints tables.
func writeDescription(out io.Writer, d sdk.Description) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s %s\n%s\n\nLanguages:\t%s\nCapabilities:\t%s\n", shown(d.Name), shown(d.Version), shown(d.Summary), commaed(d.Languages), commaed(d.Capabilities))
	fmt.Fprint(w, "\nTEMPLATE\tLANGUAGES\tDESCRIPTION\n")
	for _, t := range d.Templates {
		fmt.Fprintf(w, "%s\t%s\t%s\n", shown(t.Name), commaed(t.Languages), shown(t.Description))
	}
	if len(d.Schema) == 0 {
		fmt.Fprint(w, "\nIt has no settings.\n")
		return w.Flush()
	}
	fmt.Fprint(w, "\nSETTING\tTYPE\tDEFAULT\tDESCRIPTION\n")
	for path, f := range d.Schema.Paths() {
		kind := markdown.TypeOf(f)
		if f.Secret {
			kind += ", secret"
		}
		if f.FileOnly {
			kind += ", file only"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", shown(path), kind, defaultOf(f), shown(f.Description))
	}
	return w.Flush()
}

// defaultOf is the default of a setting, short enough for a column.
func defaultOf(f sdk.Field) string {
	switch v := f.Default.(type) {
	case nil:
		if f.Required {
			return "(required)"
		}
		return "-"
	case []any:
		return counted(len(v), "item")
	case map[string]any:
		return counted(len(v), "key")
	case string:
		return shown(v)
	case time.Duration:
		return v.String()
	default:
		return shown(fmt.Sprint(v))
	}
}

func commaed[T ~string](words []T) string {
	if len(words) == 0 {
		return "none"
	}
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = shown(string(word))
	}
	return strings.Join(all, ", ")
}

// shown makes a plugin's text fit for a terminal: one line, nothing that steers it.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, oneLine(text))
}
