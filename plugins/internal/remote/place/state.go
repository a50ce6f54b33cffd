package place

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
)

// State is what is known of a command.
type State struct {
	ID   string   `json:"id"`
	Argv []string `json:"argv"`
	Cwd  string   `json:"cwd"`
	// Started is a time of Unix.
	Started float64 `json:"started"`
	// Stdout and Stderr are how many bytes it has printed, kept or not.
	Stdout   int64           `json:"stdout"`
	Stderr   int64           `json:"stderr"`
	Done     *supervise.Done `json:"done"`
	Stdin    bool            `json:"stdin"`
	Terminal bool            `json:"terminal"`
	// Signals are those that it was sent.
	Signals []int `json:"signals"`
	// Taken is how many bytes of input it was given; Closed says that it takes no more.
	Taken  int64 `json:"taken"`
	Closed bool  `json:"closed"`
}

// Command starts a program whose output is kept, and returns when it runs.
func Command(ctx context.Context, r Runner, p Program) (State, error) {
	a, err := ask(ctx, r, start(p))
	return a.State, err
}

// Inspect returns what is known of a command.
func Inspect(ctx context.Context, r Runner, id string) (State, error) {
	a, err := ask(ctx, r, call{Do: "state", ID: id})
	return a.State, err
}

// States are of those that run or are still known, the oldest not necessarily first.
func States(ctx context.Context, r Runner) ([]State, error) {
	a, err := ask(ctx, r, call{Do: "list"})
	return a.States, err
}

// Write writes to the input of a command, which has taken offset bytes before; what it
// has taken of these meanwhile is not written again. It returns how many it has taken
// then: a command that does not read takes no more for a while. ErrEnded means that its
// input is closed.
func Write(ctx context.Context, r Runner, id string, offset int64, data []byte, end bool) (int64, error) {
	a, err := ask(ctx, r, call{Do: "write", ID: id, Offset: offset, Data: data, End: end, Wait: wait.Seconds()})
	return a.Taken, err
}

// Resize tells a command the size of its terminal.
func Resize(ctx context.Context, r Runner, id string, size Size) error {
	_, err := ask(ctx, r, call{Do: "resize", ID: id, Rows: size.Rows, Columns: size.Columns})
	return err
}

// Signal sends a signal to all processes of a command, and again only for another nonce.
func Signal(ctx context.Context, r Runner, id, signal, nonce string) error {
	_, err := ask(ctx, r, call{Do: "signal", ID: id, Signal: signal, Source: nonce})
	return err
}
