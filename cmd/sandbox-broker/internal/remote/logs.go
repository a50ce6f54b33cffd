package remote

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Logs shows what a command or an execution has printed.
type Logs struct {
	Instance string `arg:"" help:"An instance: its ID, the beginning of the last part of that, or its session. Or an execution: its ID, as executions lists them." complete:"instances"`
	Command  string `arg:"" optional:"" help:"A command in it, by its ID, as ps INSTANCE lists them. Default: the one that began last." complete:"none"`
	Follow   bool   `short:"f" help:"Go on with what comes, until the command or execution has ended."`
	Connection
}

// Help is shown below the usage.
func (*Logs) Help() string {
	return `What was printed goes to the same streams as it did there. The instance keeps the last
part of each, as much as the output limit. To leave ends nothing.

Examples:
  sandbox-broker exec -d build -- make test
  sandbox-broker logs --follow build
  sandbox-broker logs build c-3 2>/dev/null
  sandbox-broker logs --follow $(sandbox-broker run --detach long.py)`
}

// Run shows what is kept, and with Follow what comes.
func (c *Logs) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	id, err := instanceNamed(ctx, broker, c.Instance)
	if err != nil && c.Command == "" {
		if _, found := client.ExecutionsOf(broker).Get(ctx, c.Instance); found == nil {
			return executionLogs(ctx, console, broker, c.Instance, c.Follow)
		}
	}
	if err != nil {
		return err
	}
	command := c.Command
	if command == "" {
		list, err := broker.Commands(ctx, id)
		if err != nil {
			return err
		}
		if len(list.Commands) == 0 {
			return errors.New("nothing has run in this instance that has logs: exec starts a command")
		}
		command = list.Commands[len(list.Commands)-1].ID
	}
	ctx, leave := untilSignal(ctx)
	defer leave()
	query := url.Values{}
	if c.Follow {
		query.Set("follow", "true")
	}
	events, err := broker.FollowCommand(ctx, id, command, query)
	if err != nil {
		return err
	}
	defer events.Close()
	shown := &followed{console: console}
	if _, err := shown.show(events); err != nil {
		if ctx.Err() != nil {
			return nil // somebody has seen enough
		}
		return err
	}
	if shown.lost > 0 {
		fmt.Fprintf(console.Err, "sandbox-broker: %d bytes are not kept any more\n", shown.lost)
	}
	return nil
}

// commandList is how commands are shown at a time.
func commandList(now time.Time) listing[client.Command] {
	return listing[client.Command]{
		columns: []table.Column[client.Command]{
			{Head: "ID", Cell: func(c client.Command) string { return c.ID }},
			{Head: "STATE", Cell: func(c client.Command) string { return c.State }, Color: func(c client.Command) table.Color { return colorOf(c.State) }},
			{Head: "EXIT CODE", Cell: func(c client.Command) string {
				if c.ExitCode == nil {
					return ""
				}
				return fmt.Sprint(*c.ExitCode)
			}},
			{Head: "AGE", Cell: func(c client.Command) string { return table.Duration(now.Sub(c.StartedAt)) }},
			{Head: "OUTPUT", Cell: func(c client.Command) string { return size(c.StdoutBytes + c.StderrBytes) }},
			{Head: "COMMAND", Cell: func(c client.Command) string { return shortened(strings.Join(c.Argv, " "), 60) }},
			{Head: "DIRECTORY", Wide: true, Cell: func(c client.Command) string { return c.Cwd }},
		},
		name: func(c client.Command) string { return c.ID },
	}
}

// shortened is text of some characters at most.
func shortened(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
