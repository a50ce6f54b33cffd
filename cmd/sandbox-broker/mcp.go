package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/mcp"
	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/remote"
)

type mcpCommand struct {
	Provider string        `short:"p" placeholder:"ID" help:"Make sandboxes at this provider and at no other."`
	Wait     time.Duration `placeholder:"DURATION" help:"How long a call may wait for its turn when a quota has no room, such as 10s."`
	remote.Connection
}

// Help is shown below the usage.
func (*mcpCommand) Help() string {
	return `An assistant's host starts this program and speaks the Model Context Protocol with
it. It has tools that run code and commands, and keep files, in sandboxes of a running
broker. It ends when its standard input is closed.

In the configuration of a host:
  {"mcpServers": {"sandbox": {
    "command": "sandbox-broker", "args": ["mcp"],
    "env": {"SANDBOX_BROKER_URL": "http://127.0.0.1:9385", "SANDBOX_BROKER_TOKEN": "..."}
  }}}`
}

// Run serves until standard input ends. Nothing but messages goes to standard output.
func (c *mcpCommand) Run(ctx context.Context, term *terminal) error {
	if c.Wait < 0 {
		fmt.Fprintln(term.err, "sandbox-broker: --wait must be more than 0")
		return exitCode(exitUsage)
	}
	if c.TokenFile == "-" {
		fmt.Fprintln(term.err, "sandbox-broker: standard input is the host's: --token-file must be a file")
		return exitCode(exitUsage)
	}
	broker, err := c.Client(term.console())
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx, io.Discard)
	defer stop()
	gone, leave := context.WithCancel(ctx)
	defer leave()
	server := mcp.NewServer(buildVersion(), func(context.Context) (mcp.Caller, error) {
		return mcp.Caller{Client: broker, Provider: c.Provider, Wait: c.Wait, Gone: gone}, nil
	})
	err = server.Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(endingReader{term.in, leave}), Writer: nopCloser{term.out}})
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return fmt.Errorf("speak with the host: %w", err)
	}
	return nil
}

// endingReader tells that there is nothing more to read: the SDK would wait for the calls
// that are under way, and nobody reads their answers any more.
type endingReader struct {
	io.Reader
	end func()
}

// Read implements io.Reader.
func (r endingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil {
		r.end()
	}
	return n, err
}

// nopCloser is a stream that its owner closes.
type nopCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }
