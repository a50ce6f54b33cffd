package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// versionTimeout bounds the question to the broker.
const versionTimeout = 3 * time.Second

// Version prints the version of this program, and of the broker that it would ask.
type Version struct {
	Client bool   `help:"Ask no broker."`
	Output string `short:"o" default:"text" enum:"text,json" help:"How to print: ${enum}."`
	Connection
}

// Help is shown below the usage.
func (*Version) Help() string {
	return `Which version a broker has is told to administrators; others see whether it is ready. One
that does not answer is said on standard error, and is no failure.

Examples:
  sandbox-broker version
  sandbox-broker version --client`
}

// versions is what the command prints as JSON.
type versions struct {
	Client string `json:"client"`
	Broker string `json:"broker,omitempty"`
	Ready  *bool  `json:"ready,omitempty"`
}

// Own is the line about this program; it comes bound by main.
type Own struct{ Line, Version string }

// Run prints a line each.
func (c *Version) Run(ctx context.Context, console *Console, own Own) error {
	said := versions{Client: own.Version}
	if !c.Client {
		if err := c.ask(ctx, console, &said); err != nil {
			return err
		}
	}
	if c.Output == "json" {
		answer, err := json.Marshal(said)
		if err != nil {
			return err
		}
		return printJSON(console.Out, answer)
	}
	text := own.Line + "\n"
	if said.Ready != nil {
		state := "ready"
		if !*said.Ready {
			state = "not ready"
		}
		version := said.Broker
		if version == "" {
			version = "of a version that administrators see"
		}
		text += fmt.Sprintf("broker %s, %s\n", version, state)
	}
	_, err := fmt.Fprint(console.Out, text)
	return err
}

// ask fills in what the broker says. Only a command line that makes no sense is an error.
func (c *Version) ask(ctx context.Context, console *Console, said *versions) error {
	broker, err := c.Connection.Client(console)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	_, err = broker.Ready(ctx)
	if _, refused := errors.AsType[*client.Problem](err); err != nil && !refused {
		fmt.Fprintf(console.Err, "sandbox-broker: %v\n", err)
		return nil
	}
	ready := err == nil
	said.Ready = &ready
	if status, err := broker.Admin().Status(ctx); err == nil {
		said.Broker = status.Data.Version
	}
	return nil
}
