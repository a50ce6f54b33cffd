package remote

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Providers lists the providers that the tenant may use.
type Providers struct {
	Output
	Connection
}

// Help is shown below the usage.
func (*Providers) Help() string {
	return `The active one serves requests that name none.

Examples:
  sandbox-broker providers
  sandbox-broker providers --output wide`
}

// Run lists.
func (c *Providers) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	answer, list, err := answered[client.ProviderList](ctx, broker, client.Request{Path: "/api/v1/providers"})
	if err != nil {
		return err
	}
	return listing[client.Provider]{
		columns: []table.Column[client.Provider]{
			{Head: "ID", Cell: func(p client.Provider) string { return p.ID }},
			{Head: "ACTIVE", Cell: func(p client.Provider) string { return yes(p.Active) }},
			{Head: "STATE", Cell: func(p client.Provider) string { return p.State }, Color: func(p client.Provider) table.Color { return colorOf(p.State) }},
			{Head: "PLUGIN", Cell: func(p client.Provider) string { return p.Plugin + " " + p.Version }},
			{Head: "LANGUAGES", Cell: func(p client.Provider) string { return strings.Join(p.Languages, ",") }},
			{Head: "REASON", Cell: func(p client.Provider) string { return p.Reason }},
			{Head: "TEMPLATES", Wide: true, Cell: func(p client.Provider) string { return strings.Join(templates(p), ",") }},
			{Head: "CAPABILITIES", Wide: true, Cell: func(p client.Provider) string { return strings.Join(p.Capabilities, ",") }},
		},
		name: func(p client.Provider) string { return p.ID },
	}.print(console, c.Output.Output, list.Providers, answer)
}

func templates(p client.Provider) []string {
	var all []string
	for _, t := range p.Templates {
		all = append(all, t.Name)
	}
	return all
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// Usage shows what the tenant has used and may use.
type Usage struct {
	Output
	Connection
}

// Help is shown below the usage.
func (*Usage) Help() string {
	return `Without a limit there is none.

Examples:
  sandbox-broker usage
  sandbox-broker usage --output json`
}

// Run lists.
func (c *Usage) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	answer, usage, err := answered[client.Usage](ctx, broker, client.Request{Path: "/api/v1/usage"})
	if err != nil {
		return err
	}
	now := time.Now()
	l := listing[client.UsageLine]{
		columns: []table.Column[client.UsageLine]{
			{Head: "LIMIT", Cell: func(u client.UsageLine) string { return u.Name }},
			{Head: "USED", Cell: func(u client.UsageLine) string { return number(u.Used) }, Color: colorOfUsage},
			{Head: "OF", Cell: func(u client.UsageLine) string { return number(u.Limit) }},
			{Head: "RESETS", Cell: func(u client.UsageLine) string {
				if u.ResetsAt == nil {
					return ""
				}
				return "in " + table.Duration(max(0, u.ResetsAt.Sub(now)))
			}},
		},
		name: func(u client.UsageLine) string { return u.Name },
	}
	if err := l.print(console, c.Output.Output, usage.Limits, answer); err != nil {
		return err
	}
	if usage.Waiting > 0 && (c.Output.Output == "table" || c.Output.Output == "wide") {
		_, err = fmt.Fprintf(console.Out, "\n%d waiting for their turn\n", usage.Waiting)
	}
	return err
}

// colorOfUsage warns where nearly all is used.
func colorOfUsage(u client.UsageLine) table.Color {
	if u.Used == nil || u.Limit == nil || *u.Limit <= 0 {
		return table.Plain
	}
	switch share := *u.Used / *u.Limit; {
	case share >= 1:
		return table.Red
	case share >= 0.8:
		return table.Yellow
	default:
		return table.Plain
	}
}

// number is an amount as the API writes it, and nothing for none.
func number(n *float64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatFloat(*n, 'f', -1, 64)
}
