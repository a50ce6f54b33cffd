package remote

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Shell opens a terminal in an instance.
type Shell struct {
	Instance string   `arg:"" help:"An instance: its ID, the beginning of the last part of that, or its session." complete:"instances"`
	Command  []string `arg:"" optional:"" passthrough:"partial" help:"Another program than the shell, and its arguments." complete:"none"`

	Env     []string `short:"e" sep:"none" placeholder:"NAME=VALUE" help:"A variable of the shell's environment; NAME alone takes the value from here. Again for more."`
	Workdir string   `short:"w" placeholder:"DIR" help:"The directory that it starts in. Default: /workspace."`
	Attach  string   `placeholder:"COMMAND" help:"Sit down at the terminal of a command that runs there already, by its ID."`
	Connection
}

// Help is shown below the usage.
func (*Shell) Help() string {
	return `The window's size is told to the shell, also when it changes. The shell ends with
exit or Ctrl-D, and its exit code is that of this command. If the connection breaks off
the shell goes on, and --attach returns to it. A signal here ends it.

Examples:
  sandbox-broker shell build
  sandbox-broker shell build -- python3
  sandbox-broker shell --attach c-3 build`
}

// defaultShell is bash where there is one.
var defaultShell = []string{"sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"}

// Run sits down at a terminal.
func (c *Shell) Run(ctx context.Context, console *Console) error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if c.Attach != "" && (len(c.Command) > 0 || len(c.Env) > 0 || c.Workdir != "") {
		return usageErrorf("--attach goes with neither a command, --env nor --workdir: it runs already")
	}
	env, err := environment(console, c.Env)
	if err != nil {
		return usageError{err}
	}
	if err := needsTerminal(console, "shell"); err != nil {
		return err
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	id, err := instanceNamed(ctx, broker, c.Instance)
	if err != nil {
		return err
	}
	if c.Attach != "" {
		seat := &seat{broker: broker, console: console, instance: id, command: c.Attach}
		return seat.sit(ctx)
	}
	argv := c.Command
	if len(argv) == 0 {
		argv = defaultShell
	}
	return sitDown(ctx, broker, console, id, client.StartCommandRequest{Argv: argv, Env: env, Cwd: c.Workdir})
}

func needsTerminal(console *Console, what string) error {
	if console.keyboard == nil || console.screen == nil {
		return usageErrorf("%s takes a terminal: standard input and output are none here. For programs there is exec -i", what)
	}
	return nil
}

// sitDown starts a command with a terminal and sits down at it. The console must have one.
func sitDown(ctx context.Context, broker *client.Client, console *Console, id string, req client.StartCommandRequest) error {
	size, err := sizeOf(console.screen)
	if err != nil {
		return err
	}
	req.Terminal, req.Background, req.Stdin = &size, true, false
	if kind := console.Getenv("TERM"); kind != "" && req.Env["TERM"] == "" {
		if req.Env == nil {
			req.Env = map[string]string{}
		}
		req.Env["TERM"] = kind
	}
	command, err := broker.StartCommand(ctx, id, req)
	if err != nil {
		return notStarted(console, err)
	}
	s := &seat{broker: broker, console: console, instance: id, command: command.ID, owns: true}
	return s.sit(ctx)
}

func sizeOf(screen *os.File) (client.TerminalSize, error) {
	columns, rows, err := term.GetSize(int(screen.Fd()))
	if err != nil {
		return client.TerminalSize{}, fmt.Errorf("the size of the terminal: %w", err)
	}
	// A terminal that nobody has told its size has none.
	if columns < 1 || rows < 1 {
		columns, rows = 80, 24
	}
	return client.TerminalSize{Rows: rows, Columns: columns}, nil
}

// seat is a place at the terminal of a command in an instance.
type seat struct {
	broker            *client.Client
	console           *Console
	instance, command string
	owns              bool // whether the command ends when this process is ended
}

// sit passes keys and output on until the command has ended. Whatever ends it, the terminal
// here is then as it was.
func (s *seat) sit(ctx context.Context) error {
	ctx, leave := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	defer leave()
	terminal, err := s.broker.Terminal(ctx, s.instance, s.command, nil)
	if err != nil {
		s.abandon()
		return err
	}
	defer terminal.Close()
	keys, err := openKeyboard(s.console.keyboard)
	if err != nil {
		s.abandon()
		return err
	}
	var sides sync.WaitGroup
	sides.Go(func() { typeKeys(ctx, terminal, keys) })
	within, done := context.WithCancel(ctx)
	sides.Go(func() { s.followSize(within, terminal) })
	end, lost, err := s.show(ctx, terminal)
	stopped := ctx.Err() != nil
	done()
	keys.stop()
	_ = terminal.Close() // ends typing that the command does not read
	leave()
	sides.Wait()
	if restored := keys.close(); err == nil {
		err = restored
	}
	switch {
	case stopped:
		s.abandon()
		return ExitCode(exitCancelled)
	case err != nil:
		fmt.Fprintf(s.console.Err, "sandbox-broker: %v\n  The command goes on, if the instance does: sandbox-broker shell --attach %s %s\n", err, s.command, s.instance)
		return ExitCode(ExitNoAnswer)
	}
	return (&followed{console: s.console, lost: lost}).exit(end)
}

// abandon ends a command that nobody sits at any more, where it was started for that.
func (s *seat) abandon() {
	if !s.owns {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), interruptTimeout)
	defer cancel()
	if err := s.broker.KillCommand(ctx, s.instance, s.command); err != nil && !ended(err) {
		Tell(s.console.Err, fmt.Errorf("end command %s: %w", s.command, err))
	}
}

// show passes output on until the command has ended.
func (s *seat) show(ctx context.Context, terminal *client.Terminal) (end client.Command, lost int64, err error) {
	for {
		shown, message, err := terminal.Receive(ctx)
		switch {
		case err != nil:
			return end, lost, err
		case message.Done != nil:
			return *message.Done, lost, nil
		case message.Error != nil:
			return end, lost, message.Error
		}
		lost += message.Lost
		if _, err := s.console.Out.Write(shown); err != nil {
			return end, lost, err
		}
	}
}

// typeKeys passes on what is typed until the keyboard is stopped.
func typeKeys(ctx context.Context, terminal *client.Terminal, keys *keyboard) {
	typed := make([]byte, 4096)
	for {
		n, err := keys.Read(typed)
		if n > 0 && terminal.Type(ctx, typed[:n]) != nil {
			return // show tells why
		}
		if err != nil {
			return
		}
	}
}

// resizeTimeout bounds the telling of a size.
const resizeTimeout = 5 * time.Second

// followSize tells the command each size that the window takes.
func (s *seat) followSize(ctx context.Context, terminal *client.Terminal) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	defer signal.Stop(changes)
	// The window may have changed before somebody listened.
	for {
		if size, err := sizeOf(s.console.screen); err == nil {
			within, cancel := context.WithTimeout(ctx, resizeTimeout)
			err = terminal.Resize(within, size)
			cancel()
			if err != nil {
				return // show tells why
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changes:
		}
	}
}
