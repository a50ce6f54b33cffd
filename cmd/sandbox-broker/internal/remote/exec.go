package remote

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Exec runs a command in an instance. With a file and no command it does what Run does.
type Exec struct {
	Name    string   `arg:"" optional:"" name:"instance" help:"An instance: its ID, the beginning of the last part of that, or its session. Alone: a file with code, or - for standard input, as for run." complete:"instances"`
	Command []string `arg:"" optional:"" name:"command" passthrough:"partial" help:"The program and its arguments; all that follows is theirs." complete:"none"`

	Interactive bool          `short:"i" help:"Pass standard input on."`
	TTY         bool          `name:"tty" short:"t" help:"Give the command a terminal. Takes -i along, and a terminal here."`
	Detach      bool          `short:"d" help:"Leave the command running, and print its ID: see logs."`
	Env         []string      `short:"e" sep:"none" placeholder:"NAME=VALUE" help:"A variable of the command's environment; NAME alone takes the value from here. Again for more."`
	Workdir     string        `short:"w" placeholder:"DIR" help:"The directory that it starts in. Default: /workspace, which a relative one is below."`
	Timeout     time.Duration `placeholder:"DURATION" help:"How long it may run, such as 10s."`
	Code
	Connection
}

// Help is shown below the usage.
func (*Exec) Help() string {
	return `Output and errors of the command go to the same streams as here while it runs.
Ctrl-C interrupts it in its sandbox; a second one leaves. A command does not wait for who
reads it: what it prints faster is lost, which is said and makes the exit code 1 at least.
Copy large files with cp. The exit code is that of the command, or

  124  it ran out of time
  127  there is no such program
  137  it ran out of memory, or was killed
    3  the broker is not there or refused
    2  the command line makes no sense

With a file instead of an instance, and no command, this is run: exec FILE stays what
it was, with the flags of the group "Code".

Examples:
  sandbox-broker exec build -- make test
  sandbox-broker exec -w /tmp -e DEBUG=1 build ./check --fast
  sandbox-broker exec -it build bash
  tar -c src | sandbox-broker exec -i build tar -x
  sandbox-broker exec -d build -- python3 -m http.server 8000
  sandbox-broker exec hello.py --arg name=World`
}

// Run decides by the words that are there.
func (c *Exec) Run(ctx context.Context, console *Console) error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return c.code(ctx, console)
	}
	if c.ofCode() {
		return usageErrorf("with a command in an instance, --file, --arg, --args, --language, --wait, --session, --provider and --json have no meaning")
	}
	if c.Timeout < 0 {
		return usageErrorf("--timeout must be more than 0")
	}
	if c.Detach && (c.TTY || c.Interactive) {
		return usageErrorf("--detach goes with neither --interactive nor --tty: nobody would type")
	}
	if c.Interactive && c.TokenFile == "-" {
		return usageErrorf("standard input is one thing: both --interactive and --token-file - are there")
	}
	if c.TTY {
		if err := needsTerminal(console, "--tty"); err != nil {
			return err
		}
	}
	env, err := environment(console, c.Env)
	if err != nil {
		return usageError{err}
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	id, err := instanceNamed(ctx, broker, c.Name)
	if err != nil {
		return err
	}
	req := client.StartCommandRequest{Argv: c.Command, Env: env, Cwd: c.Workdir, Timeout: c.Timeout.Seconds(), Stdin: c.Interactive}
	switch {
	case c.Detach:
		return detach(ctx, broker, console, id, req)
	case c.TTY:
		return sitDown(ctx, broker, console, id, req)
	default:
		return follow(ctx, broker, console, id, req)
	}
}

// code runs code, as Run does.
func (c *Exec) code(ctx context.Context, console *Console) error {
	if c.Interactive || c.TTY || c.Detach || len(c.Env) > 0 || c.Workdir != "" {
		return usageErrorf("--interactive, --tty, --detach, --env and --workdir are for a command in an instance: write exec INSTANCE -- COMMAND")
	}
	if c.Name != "" && c.Name != "-" {
		if _, err := os.Stat(c.Name); err != nil {
			return usageErrorf("%w; for a command in an instance write exec INSTANCE -- COMMAND", err)
		}
	}
	e := &execution{Code: c.Code, name: c.Name, timeout: c.Timeout, connection: &c.Connection, console: console}
	return e.run(ctx)
}

func (c *Exec) ofCode() bool {
	code := c.Code
	return code.File != "" || len(code.Arg) > 0 || code.Args != "" || code.Language != "" || code.Wait != 0 ||
		code.Session != "" || code.Provider != "" || code.JSON
}

// environment reads NAME=VALUE, and takes the value of a NAME alone from here.
func environment(console *Console, pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	env := map[string]string{}
	for _, pair := range pairs {
		name, value, given := strings.Cut(pair, "=")
		if name == "" {
			return nil, fmt.Errorf("--env %s: write NAME=VALUE", pair)
		}
		if !given {
			value = console.Getenv(name)
		}
		env[name] = value
	}
	return env, nil
}

// detach leaves a command running.
func detach(ctx context.Context, broker *client.Client, console *Console, id string, req client.StartCommandRequest) error {
	req.Background = true
	command, err := broker.StartCommand(ctx, id, req)
	if err != nil {
		return notStarted(console, err)
	}
	_, err = fmt.Fprintln(console.Out, command.ID)
	return err
}
