package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const pathConfig = "/api/admin/sandbox/config"

// Config has the commands about the configuration of a running broker.
type Config struct {
	Show        ConfigShow        `cmd:"" help:"Show the configuration in force (administrators)."`
	Apply       ConfigApply       `cmd:"" help:"Give a provider other settings (administrators)."`
	Activate    ConfigActivate    `cmd:"" help:"Choose the active provider (administrators)."`
	Reload      ConfigReload      `cmd:"" help:"Have the files read again, or say what that would change (administrators)."`
	Generations ConfigGenerations `cmd:"" help:"List the last attempts to change the configuration (administrators)."`
	Context     ContextCommands   `cmd:"" help:"Keep where brokers are, and the tokens for them, under names."`
}

// ConfigShow shows the configuration in force.
type ConfigShow struct {
	Output
	Connection
}

// Help is shown below the usage.
func (*ConfigShow) Help() string {
	return `Secrets are masked. --output json has the revision that apply takes.

Examples:
  sandbox-broker config show --context admin
  sandbox-broker config show --output json`
}

// setting is a line of the table.
type setting struct{ provider, name, value, origin string }

// Run shows each setting in a line.
func (c *ConfigShow) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	answer, config, err := answered[client.AdminConfig](ctx, broker, client.Request{Path: pathConfig})
	if err != nil {
		return err
	}
	l := listing[setting]{
		columns: []table.Column[setting]{
			{Head: "PROVIDER", Cell: func(s setting) string { return s.provider }},
			{Head: "SETTING", Cell: func(s setting) string { return s.name }},
			{Head: "VALUE", Cell: func(s setting) string { return s.value }},
			{Head: "FROM", Cell: func(s setting) string { return s.origin }},
		},
		name: func(s setting) string { return s.provider + "." + s.name },
	}
	if err := l.print(console, c.Output.Output, settingsOf(config), answer); err != nil {
		return err
	}
	if as := c.Output.Output; as == "json" || as == "name" {
		return nil
	}
	_, err = fmt.Fprintf(console.Out, "\nactive: %v, fallback: %s, generation %d, revision %.12s\n",
		config.Data["active"], orNone(config.Meta.Fallback), config.Meta.Generation, config.Meta.Revision)
	if err == nil && config.Meta.Differs {
		_, err = fmt.Fprintln(console.Out, "The files are others than what is in force: see config generations.")
	}
	return err
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

func settingsOf(config client.AdminConfig) []setting {
	var all []setting
	for _, provider := range slices.Sorted(maps.Keys(config.Data)) {
		settings, is := config.Data[provider].(map[string]any)
		if !is {
			continue // "active"
		}
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			value, _ := json.Marshal(settings[name]) // it was JSON before
			from := config.Meta.Origins[provider][name]
			origin := strings.TrimSpace(from.Origin + " " + from.Name)
			all = append(all, setting{provider, name, shortened(string(value), 60), origin})
		}
	}
	return all
}

// ConfigApply gives a provider other settings.
type ConfigApply struct {
	Provider string   `arg:"" help:"Its label. One that there is not is added." complete:"providers"`
	Setting  []string `arg:"" optional:"" name:"setting" help:"NAME=TEXT or NAME:=JSON; NAME:=null has the default hold again."`
	File     string   `short:"f" placeholder:"FILE" help:"Settings as a JSON object, or - for standard input: for secrets, which everybody sees on a command line."`
	Plugin   string   `placeholder:"NAME" help:"For a provider that there is not: the name of its executable."`
	Active   bool     `help:"Make it the active provider."`
	Test     bool     `help:"Try the provider first, and change nothing if it is not well."`
	Revision string   `placeholder:"REVISION" help:"Refuse, if the configuration is another one by now: as config show --output json prints it."`
	Output
	Connection
}

// Help is shown below the usage.
func (*ConfigApply) Help() string {
	return `Settings that are not named stay. The configuration file is changed in place, and a change
that does not work never reaches it.

Examples:
  sandbox-broker config apply self_managed pool_size:=8
  sandbox-broker config apply e2b region=eu --test --active
  echo '{"api_key": "..."}' | sandbox-broker config apply e2b --file -`
}

// Run changes settings, and says what came of it.
func (c *ConfigApply) Run(ctx context.Context, console *Console) error {
	settings, err := c.settings(console)
	if err != nil {
		return usageError{err}
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	if c.Revision != "" {
		broker = broker.With("If-Match", `"`+c.Revision+`"`)
	}
	stop := startProgress(console, func() string { return "trying the new settings" })
	answer, changed, err := answered[client.AdminChanged](ctx, broker, client.Request{Method: "POST", Path: pathConfig, Body: client.AdminConfigRequest{
		ProviderType: c.Provider, Plugin: c.Plugin, Config: settings, Test: c.Test, SetActive: &c.Active,
	}})
	stop()
	if err != nil {
		return err
	}
	return printReload(console, c.Output.Output, changed.Data, answer)
}

// settings reads those of the file, and those of the command line over them.
func (c *ConfigApply) settings(console *Console) (client.JSONObject, error) {
	text := ""
	if c.File != "" {
		if c.File == "-" && c.TokenFile == "-" {
			return nil, errors.New("standard input is one thing: both --file and --token-file are -")
		}
		read, err := readAll(console.In, c.File)
		if err != nil {
			return nil, err
		}
		text = string(read)
	}
	for _, pair := range c.Setting {
		if name, _, ok := strings.Cut(pair, "="); !ok || name == "" {
			return nil, fmt.Errorf("%s: write NAME=TEXT or NAME:=JSON", pair)
		}
	}
	settings, err := argumentsOf(text, c.Setting)
	if err != nil {
		return nil, err
	}
	if settings == nil {
		settings = json.RawMessage("{}")
	}
	return client.JSONObject(settings), nil
}

// readAll reads a file, or what in is where that is named "-".
func readAll(in io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(in, client.MaxAnswer))
	}
	return os.ReadFile(name)
}

// ConfigActivate chooses the active provider.
type ConfigActivate struct {
	Provider string   `arg:"" help:"Its label." complete:"providers"`
	Fallback []string `placeholder:"LABEL" help:"One that takes over from it. Again for more, in this order; unless given, the list stays." complete:"providers"`
	Output
	Connection
}

// Run chooses it.
func (c *ConfigActivate) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	req := client.AdminActiveRequest{Provider: c.Provider}
	if len(c.Fallback) > 0 {
		req.Fallback = &c.Fallback
	}
	answer, changed, err := answered[client.AdminChanged](ctx, broker, client.Request{Method: "PUT", Path: "/api/admin/sandbox/active", Body: req})
	if err != nil {
		return err
	}
	return printReload(console, c.Output.Output, changed.Data, answer)
}

// ConfigReload has the files read.
type ConfigReload struct {
	DryRun bool `help:"Only say what would change."`
	Output
	Connection
}

// Help is shown below the usage.
func (*ConfigReload) Help() string {
	return `The exit code is 1 if the files were refused.

Examples:
  sandbox-broker config reload --dry-run`
}

// Run reloads.
func (c *ConfigReload) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	stop := startProgress(console, func() string { return "reading the configuration" })
	answer, reloaded, err := answered[client.AdminReloaded](ctx, broker, client.Request{
		Method: "POST", Path: "/api/admin/sandbox/reload", Body: client.AdminReloadRequest{DryRun: c.DryRun},
	})
	stop()
	if err != nil {
		return err
	}
	return printReload(console, c.Output.Output, reloaded.Data, answer)
}

// printReload says what came of a change. One that was refused is a failure.
func printReload(console *Console, as string, r client.AdminReload, answer json.RawMessage) error {
	var err error
	switch as {
	case "json":
		err = printJSON(console.Out, answer)
	case "name":
		_, err = fmt.Fprintln(console.Out, r.Generation)
	default:
		_, err = io.WriteString(console.Out, reloadText(r))
	}
	if err == nil && r.Result == "refused" {
		return ExitCode(ExitFailed)
	}
	return err
}

func reloadText(r client.AdminReload) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: generation %d, revision %.12s\n", r.Result, r.Generation, r.Revision)
	for _, line := range changes(r.Change) {
		fmt.Fprintf(&b, "  %s\n", table.Printable(line))
	}
	for _, d := range r.Diagnostics {
		fmt.Fprintf(&b, "  %s\n", diagnostic(d))
	}
	return b.String()
}

func changes(c client.AdminChange) []string {
	var all []string
	for _, p := range c.Providers {
		line := "provider " + p.Provider + ": " + p.Action
		if p.Draining > 0 {
			line += fmt.Sprintf(", %d instances live on", p.Draining)
		}
		all = append(all, line)
	}
	for _, of := range []struct {
		what  string
		names []string
	}{{"tenants added", c.TenantsAdded}, {"tenants removed", c.TenantsRemoved}, {"tenants changed", c.TenantsChanged}, {"settings", c.Settings}} {
		if len(of.names) > 0 {
			all = append(all, of.what+": "+strings.Join(of.names, ", "))
		}
	}
	return all
}

// ConfigGenerations lists attempts to change the configuration.
type ConfigGenerations struct {
	Output
	Connection
}

// Run lists them, the newest first.
func (c *ConfigGenerations) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	answer, list, err := answered[client.AdminGenerations](ctx, broker, client.Request{Path: "/api/admin/sandbox/generations"})
	if err != nil {
		return err
	}
	now := time.Now()
	return listing[client.AdminReload]{
		columns: []table.Column[client.AdminReload]{
			{Head: "GENERATION", Cell: func(r client.AdminReload) string { return fmt.Sprint(r.Generation) }},
			{Head: "RESULT", Cell: func(r client.AdminReload) string { return r.Result }, Color: func(r client.AdminReload) table.Color { return colorOf(r.Result) }},
			{Head: "AGE", Cell: func(r client.AdminReload) string { return table.Duration(now.Sub(r.At)) }},
			{Head: "BY", Cell: func(r client.AdminReload) string { return strings.TrimSpace(r.Trigger + " " + r.Operation) }},
			{Head: "CHANGE", Cell: func(r client.AdminReload) string { return strings.Join(changes(r.Change), "; ") }},
			{Head: "REVISION", Wide: true, Cell: func(r client.AdminReload) string { return r.Revision }},
		},
		name: func(r client.AdminReload) string { return fmt.Sprint(r.Generation) },
	}.print(console, c.Output.Output, list.Data, answer)
}
