package place

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
)

// Program is what is to be run.
type Program struct {
	// ID names it in the sandbox: letters and digits that nobody has used before.
	ID string
	// Argv is the command; "{}" in it stands for the file with Source, if Suffix is
	// set.
	Argv           []string
	Source, Suffix string
	Dir            string
	// Env is added to the environment that commands have.
	Env map[string]string
	// Timeout of 0 is none.
	Timeout time.Duration
	// Grace is how long an interrupted program may go on.
	Grace     time.Duration
	Artifacts *supervise.Artifacts

	// Keep makes it a command: so many bytes of each stream are kept, the latest ones.
	Keep     int64
	Stdin    bool
	Terminal *Size
}

// Size is that of a terminal, in characters.
type Size struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// Progress is what a program has printed since the last call, and how it ended.
type Progress struct {
	Stdout, Stderr []byte
	// StdoutAt and StderrAt are where they begin, in bytes since the start.
	StdoutAt, StderrAt int64
	// Done is nil while it runs, or while there is more output.
	Done *supervise.Done
	// Result is the JSON that main returned in a kernel.
	Result string
	// Kills is how many processes the kernel of the sandbox has killed for memory.
	Kills int64
}

// start is the call that starts a program.
func start(p Program) call {
	return call{
		Do: "run", ID: p.ID, Argv: p.Argv, Source: p.Source, Suffix: p.Suffix, Dir: p.Dir, Env: p.Env, Keep: p.Keep, Stdin: p.Stdin,
		Terminal: p.Terminal, Artifacts: p.Artifacts, Timeout: p.Timeout.Seconds(), Grace: p.Grace.Seconds(), Most: most,
		Wait: wait.Seconds(), Linger: linger.Seconds(), Piece: piece,
	}
}

// scratch is a file for content on its way.
func scratch(id string) string { return "/tmp/.sandbox-broker-" + id }

// Start starts a program and returns its first output.
func Start(ctx context.Context, r Runner, p Program) (Progress, error) {
	return progress(ask(ctx, r, start(p)))
}

// Watch waits for output beyond these offsets, or for the end. ErrUnknown means that
// the program was never started.
func Watch(ctx context.Context, r Runner, id string, stdout, stderr int64) (Progress, error) {
	return progress(ask(ctx, r, call{Do: "watch", ID: id, Stdout: stdout, Stderr: stderr, Wait: wait.Seconds(), Linger: linger.Seconds(), Piece: piece}))
}

// Look returns output beyond these offsets without waiting, and the result.
func Look(ctx context.Context, r Runner, id string, stdout, stderr int64) (Progress, error) {
	return progress(ask(ctx, r, call{Do: "watch", ID: id, Stdout: stdout, Stderr: stderr, Piece: piece, Result: true}))
}

func progress(a answer, err error) (Progress, error) {
	return Progress{Stdout: a.Stdout, Stderr: a.Stderr, StdoutAt: a.StdoutAt, StderrAt: a.StderrAt, Done: a.Done, Result: a.Result, Kills: a.Kills}, err
}

// Cancel stops a program and returns when nothing of it is left.
func Cancel(ctx context.Context, r Runner, id string) error {
	_, err := ask(ctx, r, call{Do: "cancel", ID: id, Wait: 5})
	return err
}

// Interrupt does to a program what Ctrl-C does, and ends it if it goes on.
func Interrupt(ctx context.Context, r Runner, id string) error {
	_, err := ask(ctx, r, call{Do: "interrupt", ID: id})
	return err
}

// Poke sends a signal to the process whose number is kept under an ID; none asks only
// whether it is there. It is ErrEnded if not, and ErrRefused if it is somebody else's.
func Poke(ctx context.Context, r Runner, id, signal string) error {
	_, err := ask(ctx, r, call{Do: "poke", ID: id, Signal: signal})
	return err
}
