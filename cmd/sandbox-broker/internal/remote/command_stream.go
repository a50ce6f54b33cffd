package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// follow runs a command and passes on what it prints, and what it reads if it reads.
func follow(ctx context.Context, broker *client.Client, console *Console, id string, req client.StartCommandRequest) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	c := &followed{broker: broker, console: console, instance: id, leave: leave}
	defer onSignals(c.interrupt)()
	events, err := broker.CommandEvents(ctx, id, req)
	if err != nil {
		return notStarted(console, err)
	}
	defer events.Close()
	if req.Stdin {
		c.reads = func(command string) { go c.feed(ctx, command) } // ends with the process: see feed
	}
	end, err := c.show(events)
	if err != nil {
		Tell(console.Err, err)
		return ExitCode(ExitNoAnswer)
	}
	return c.exit(end)
}

// followed is a command whose output is shown here.
type followed struct {
	broker   *client.Client
	console  *Console
	instance string
	leave    context.CancelFunc   // ends the request, and with it the command
	reads    func(command string) // is called when the command runs; may be nil
	lost     int64                // bytes of output that came too late

	mu      sync.Mutex
	command string // empty as long as none runs
}

// show passes events on until the last one.
func (c *followed) show(events *client.Events) (client.Command, error) {
	next := map[string]int64{}
	for {
		e, err := events.Next()
		if problem, failed := errors.AsType[*client.Problem](err); failed {
			return client.Command{}, problem
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return client.Command{}, fmt.Errorf("the broker's answer broke off: %w", err)
		}
		switch e.Name {
		case client.EventStarted:
			var command client.Command
			if err = client.Decode(e, &command); err == nil {
				c.started(command)
			}
		case client.EventStdout:
			err = c.pass(c.console.Out, e, next)
		case client.EventStderr:
			err = c.pass(c.console.Err, e, next)
		case client.EventDone:
			var end client.Command
			err := client.Decode(e, &end)
			return end, err
		}
		if err != nil {
			return client.Command{}, err
		}
	}
}

// started notes which command it is, and has it fed.
func (c *followed) started(command client.Command) {
	c.mu.Lock()
	c.command = command.ID
	c.mu.Unlock()
	if c.reads != nil {
		c.reads(command.ID)
	}
}

// pass writes a piece of output, and notes what is missing before it.
func (c *followed) pass(to io.Writer, e client.Event, next map[string]int64) error {
	var part client.CommandOutputPart
	if err := client.Decode(e, &part); err != nil {
		return err
	}
	data := append([]byte(part.Text), part.Base64...)
	c.lost += max(0, part.Offset-next[e.Name])
	next[e.Name] = part.Offset + int64(len(data))
	_, err := to.Write(data)
	return err
}

// pieceOfInput is how much of standard input goes into one request, in bytes.
const pieceOfInput = 256 << 10

// feed passes standard input on until its end. A read of a terminal cannot be given up:
// a command that ends before leaves it waiting, and it ends with the process.
func (c *followed) feed(ctx context.Context, command string) {
	piece := make([]byte, pieceOfInput)
	for {
		n, err := c.console.In.Read(piece)
		query := url.Values{}
		if err != nil {
			query.Set("end", "true")
		}
		if n > 0 || err != nil {
			failed := c.broker.WriteCommand(ctx, c.instance, command, query, strings.NewReader(string(piece[:n])))
			if failed != nil && !ended(failed) && ctx.Err() == nil {
				Tell(c.console.Err, fmt.Errorf("standard input: %w", failed))
			}
			if failed != nil || err != nil {
				return
			}
		}
	}
}

// ended reports whether an error says that the command reads no more.
func ended(err error) bool {
	problem, refused := errors.AsType[*client.Problem](err)
	return refused && (problem.Status == http.StatusNotFound || sdk.Code(problem.Code) == sdk.CodeConflict)
}

// interrupt does to the command what Ctrl-C does, or gives up the request if that cannot be.
func (c *followed) interrupt() {
	c.mu.Lock()
	command := c.command
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), interruptTimeout)
	defer cancel()
	if command != "" {
		if err := c.broker.SignalCommand(ctx, c.instance, command, "SIGINT"); err == nil || ended(err) {
			return
		}
	}
	c.leave()
}

// exit says what the output does not, and is the exit code as an error.
func (c *followed) exit(end client.Command) error {
	if end.Error != nil {
		fmt.Fprintf(c.console.Err, "sandbox-broker: %s %s: %s\n", end.Error.Code, end.Error.Title, end.Error.Detail)
	}
	code := exitCodeOfCommand(end)
	if c.lost > 0 {
		fmt.Fprintf(c.console.Err, "sandbox-broker: %d bytes of the output are missing: a command does not wait for who reads it.\n"+
			"  Have it write to a file, and copy that: sandbox-broker cp\n", c.lost)
		code = max(code, ExitFailed)
	}
	if code == 0 {
		return nil
	}
	return ExitCode(code)
}

func exitCodeOfCommand(c client.Command) int {
	switch {
	case c.State == string(sdk.StatusTimeout):
		return exitTimeout
	case c.State == string(sdk.StatusOutOfMemory):
		return exitOutOfMemory
	case c.ExitCode != nil:
		return *c.ExitCode & 0xff
	default:
		return ExitFailed
	}
}

// notStarted tells why a command did not start. A program that there is not is told as
// shells do.
func notStarted(console *Console, err error) error {
	Tell(console.Err, err)
	if problem, refused := errors.AsType[*client.Problem](err); refused && sdk.Code(problem.Code) == sdk.CodeInvalidRequest &&
		strings.HasPrefix(problem.Field, "argv") {
		return ExitCode(exitNotFound)
	}
	return ExitCode(ExitNoAnswer)
}
