package envd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
)

// Program is what to start.
type Program struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	// Cwd must exist.
	Cwd string `json:"cwd,omitempty"`
}

// Terminal in characters.
type Terminal struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// StartOptions say how a program runs.
type StartOptions struct {
	// Terminal instead of pipes.
	Terminal *Terminal
	// Stdin stays open for SendInput.
	Stdin bool
	// Limit after which envd kills the program, but nothing that it started; 0 for
	// none.
	Limit time.Duration
	// Tag to find it by in List.
	Tag string
}

type pty struct {
	Size *Terminal `json:"size"`
}

// Event is something that a process did: one of its fields is set. Keepalives are not
// passed on.
type Event struct {
	// Output of at most 32 KiB, that of a terminal in Stdout.
	Stdout, Stderr []byte
	End            *End
}

// End of a process.
type End struct {
	ExitCode int    `json:"exitCode"` // -1 if a signal ended it
	Exited   bool   `json:"exited"`
	Status   string `json:"status"`
}

// Process is the stream of what a process does.
type Process struct {
	PID  int
	body io.ReadCloser
}

// keepalive is how often envd shows that a silent stream lives, in seconds.
const keepalive = "50"

// Start starts a program and returns once it runs. The stream ends with ctx; the
// program does not. While nobody reads, the program is held up when it writes.
func (c *Client) Start(ctx context.Context, program Program, options StartOptions) (*Process, error) {
	request := struct {
		Process Program `json:"process"`
		Pty     *pty    `json:"pty,omitempty"`
		Stdin   bool    `json:"stdin"`
		Tag     string  `json:"tag,omitempty"`
	}{Process: program, Stdin: options.Stdin, Tag: options.Tag}
	if options.Terminal != nil {
		request.Pty = &pty{options.Terminal}
	}
	body, err := envelope(request)
	if err != nil {
		return nil, err
	}
	return c.follow(ctx, "/process.Process/Start", body, options.Limit)
}

// Connect listens to a process again, until ctx ends. What it did meanwhile is not told.
// One that has ended can be asked for for half a minute.
func (c *Client) Connect(ctx context.Context, pid int) (*Process, error) {
	body, err := envelope(map[string]any{"process": selector{pid}})
	if err != nil {
		return nil, err
	}
	return c.follow(ctx, "/process.Process/Connect", body, 0)
}

// follow asks for a stream of what a process does, and waits for its beginning.
func (c *Client) follow(ctx context.Context, method string, body []byte, limit time.Duration) (*Process, error) {
	header := http.Header{
		"Content-Type": {"application/connect+json"}, "Connect-Protocol-Version": {"1"}, "Keepalive-Ping-Interval": {keepalive},
	}
	if limit > 0 {
		header.Set("Connect-Timeout-Ms", strconv.FormatInt(limit.Milliseconds(), 10))
	}
	//nolint:bodyclose // Process.Close does
	resp, err := c.endpoint.Send(ctx, http.MethodPost, method, header, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	p := &Process{body: resp.Body}
	for p.PID == 0 {
		m, err := p.message()
		if err != nil {
			p.Close()
			if err == io.EOF { //nolint:errorlint // readMessage returns it as it is
				err = e2bhttp.Lost(errors.New("a process without a beginning"))
			}
			return nil, err
		}
		if m.Event.Start != nil {
			p.PID = m.Event.Start.PID
		}
	}
	return p, nil
}

type message struct {
	Event struct {
		Start *struct{ PID int }
		Data  *struct{ Stdout, Stderr, Pty []byte }
		End   *End
	}
}

func (p *Process) message() (m message, err error) {
	err = readMessage(p.body, &m)
	return m, err
}

// Next waits for the next event. io.EOF follows the End.
func (p *Process) Next() (Event, error) {
	for {
		m, err := p.message()
		switch {
		case err != nil:
			return Event{}, err
		case m.Event.End != nil:
			return Event{End: m.Event.End}, nil
		case m.Event.Data != nil && m.Event.Data.Pty != nil:
			return Event{Stdout: m.Event.Data.Pty}, nil
		case m.Event.Data != nil:
			return Event{Stdout: m.Event.Data.Stdout, Stderr: m.Event.Data.Stderr}, nil
		}
	}
}

// Close stops to listen. The process goes on.
func (p *Process) Close() { p.body.Close() }

type selector struct {
	PID int `json:"pid"`
}

// Signal is one that SendSignal takes.
type Signal string

// The signals.
const (
	SignalTerm Signal = "SIGNAL_SIGTERM"
	SignalKill Signal = "SIGNAL_SIGKILL"
)

// SendSignal sends a signal to a process, and to none that it started. Output that
// comes after it may be lost.
func (c *Client) SendSignal(ctx context.Context, pid int, signal Signal) error {
	return c.call(ctx, "/process.Process/SendSignal", map[string]any{"process": selector{pid}, "signal": signal}, nil)
}

// SendInput writes to the standard input, or to the terminal, and returns when all is
// taken.
func (c *Client) SendInput(ctx context.Context, pid int, terminal bool, data []byte) error {
	input := map[string][]byte{"stdin": data}
	if terminal {
		input = map[string][]byte{"pty": data}
	}
	return c.call(ctx, "/process.Process/SendInput", map[string]any{"process": selector{pid}, "input": input}, nil)
}

// CloseStdin closes the standard input. A terminal has none to close.
func (c *Client) CloseStdin(ctx context.Context, pid int) error {
	return c.call(ctx, "/process.Process/CloseStdin", map[string]any{"process": selector{pid}}, nil)
}

// Resize changes the size of the terminal.
func (c *Client) Resize(ctx context.Context, pid int, size Terminal) error {
	return c.call(ctx, "/process.Process/Update", map[string]any{"process": selector{pid}, "pty": pty{&size}}, nil)
}

// Listed is a process that runs.
type Listed struct {
	PID int
	Tag string
}

// List returns the processes that were started by envd and run.
func (c *Client) List(ctx context.Context) ([]Listed, error) {
	var list struct{ Processes []Listed }
	err := c.call(ctx, "/process.Process/List", struct{}{}, &list)
	return list.Processes, err
}

// Tagged returns the PIDs of the processes with a tag.
func (c *Client) Tagged(ctx context.Context, tag string) ([]int, error) {
	all, err := c.List(ctx)
	var found []int
	for _, p := range all {
		if p.Tag == tag {
			found = append(found, p.PID)
		}
	}
	return found, err
}
