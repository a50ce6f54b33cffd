package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const pathExecutions = "/api/v1/executions"

// Executions has the commands about code that runs, or has run, wherever it fits.
type Executions struct {
	Ls   ExecutionsLs   `cmd:"" default:"withargs" help:"List the executions."`
	Show ExecutionsShow `cmd:"" help:"Show how one stands, and what became of it, as JSON."`
	Rm   ExecutionsRm   `cmd:"" help:"Interrupt executions, or forget those that have ended."`
}

// Help is shown below the usage.
func (*Executions) Help() string {
	return `The broker remembers an execution for a while after its end, ten minutes unless the
operator has set another time.

Examples:
  id=$(sandbox-broker run --detach long.py)
  sandbox-broker executions
  sandbox-broker executions show $id
  sandbox-broker logs --follow $id
  sandbox-broker executions rm $id`
}

func executionList(now time.Time) listing[client.ExecutionInfo] {
	return listing[client.ExecutionInfo]{
		columns: []table.Column[client.ExecutionInfo]{
			{Head: "ID", Cell: func(e client.ExecutionInfo) string { return e.ExecutionID }},
			{Head: "STATE", Cell: func(e client.ExecutionInfo) string { return e.State }, Color: func(e client.ExecutionInfo) table.Color { return colorOf(e.State) }},
			{Head: "AGE", Cell: func(e client.ExecutionInfo) string { return table.Duration(now.Sub(e.CreatedAt)) }},
			{Head: "DETACHED", Cell: func(e client.ExecutionInfo) string { return map[bool]string{true: "yes"}[e.Detached] }},
			{Head: "EVENTS", Cell: func(e client.ExecutionInfo) string { return fmt.Sprint(e.Events) }},
			{Head: "WEBHOOK", Cell: func(e client.ExecutionInfo) string { return e.Webhook }},
			{Head: "PROVIDER", Wide: true, Cell: func(e client.ExecutionInfo) string { return e.Provider }},
			{Head: "INSTANCE", Wide: true, Cell: func(e client.ExecutionInfo) string { return e.InstanceID }},
		},
		name: func(e client.ExecutionInfo) string { return e.ExecutionID },
	}
}

// ExecutionsLs lists executions.
type ExecutionsLs struct {
	Output
	Connection
}

// Run lists.
func (c *ExecutionsLs) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	answer, list, err := answered[client.ExecutionList](ctx, broker, client.Request{Path: pathExecutions})
	if err != nil {
		return err
	}
	return executionList(time.Now()).print(console, c.Output.Output, list.Executions, answer)
}

// ExecutionsShow shows one.
type ExecutionsShow struct {
	Execution string `arg:"" help:"Its ID." complete:"executions"`
	Connection
}

// Run prints what the broker says.
func (c *ExecutionsShow) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	answer, _, err := answered[client.ExecutionInfo](ctx, broker, client.Request{Path: pathExecutions + "/" + url.PathEscape(c.Execution)})
	if err != nil {
		return err
	}
	return printJSON(console.Out, answer)
}

// ExecutionsRm ends executions.
type ExecutionsRm struct {
	Execution []string `arg:"" help:"Their IDs." complete:"executions"`
	Connection
}

// Run ends one after the other, and goes on behind one that cannot be.
func (c *ExecutionsRm) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	code := 0
	for _, id := range c.Execution {
		err := endExecution(ctx, broker, id)
		if err == nil {
			_, err = fmt.Fprintln(console.Out, id)
		}
		if err != nil {
			Tell(console.Err, fmt.Errorf("%s: %w", id, err))
			code = max(code, ExitCodeOf(err))
		}
	}
	if code != 0 {
		return ExitCode(code)
	}
	return nil
}

// endExecution interrupts one that runs, and forgets one that has ended.
func endExecution(ctx context.Context, broker *client.Client, id string) error {
	found, err := client.ExecutionsOf(broker).Get(ctx, id)
	if err != nil {
		return err
	}
	if found.State == client.ExecutionRunning {
		return client.ExecutionsOf(broker).Interrupt(ctx, id)
	}
	return client.ExecutionsOf(broker).Forget(ctx, id)
}

// detach begins the execution and prints its ID.
func (c *execution) detach(ctx context.Context, webhook string) error {
	request, err := c.request(c.console.In)
	if err != nil {
		return usageError{err}
	}
	if c.broker, err = c.connection.Client(c.console); err != nil {
		return err
	}
	if webhook != "" {
		request.Webhook = &client.Webhook{URL: webhook}
	}
	begun, err := client.ExecutionsOf(c.broker).Start(ctx, request)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.console.Out, begun.ExecutionID)
	return err
}

// executionLogs shows what an execution has told.
func executionLogs(ctx context.Context, console *Console, broker *client.Client, id string, follow bool) error {
	ctx, leave := untilSignal(ctx)
	defer leave()
	events, err := client.ExecutionsOf(broker).Events(ctx, id, "", follow)
	if err != nil {
		return err
	}
	defer events.Close()
	_, err = followCode(console, events, &interrupter{broker: broker, leave: leave})
	if ctx.Err() != nil || !follow && errors.Is(err, io.ErrUnexpectedEOF) {
		return nil // somebody has seen enough, or all that there is
	}
	return err
}
