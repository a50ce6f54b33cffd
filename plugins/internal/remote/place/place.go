// Package place runs programs in a sandbox, and does things with its files, where the
// service of the sandbox can do no more than run a command of the shell, for some
// seconds, and give its output when it has ended. Each program has a place there: a
// directory with all that is known of it.
//
// A small script travels with each call. calls.py starts a program under a supervisor
// (package supervise, and supervise.py) that survives the call, enforces the time limit,
// and ends all that the program started; further calls wait for output as it appears, byte
// for byte, write to the program or stop it. Package guestfiles does one thing with a file.
// Every call can be repeated: a program with the same ID is not started twice, and input is
// not written twice.
//
// All that is known of a program lies in the sandbox, so that a process after a crash
// knows what the one before it did. How a call reaches the sandbox is not known here;
// that is Runner's business.
package place

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

var (
	//go:embed request.py
	request string
	//go:embed place.py
	place string
	//go:embed supervise.py
	supervisor string
	//go:embed calls.py
	calls string

	programs = pack(supervise.Program(place, supervisor, calls))
)

const (
	// wait is how long a call waits for output, and linger for more of it.
	wait   = 10 * time.Second
	linger = 40 * time.Millisecond
	// piece is the most bytes of each stream in one answer.
	piece = 1 << 20
	// most is the output at which a program is stopped: it lies on the sandbox's disk.
	most = 64 << 20
	// longest is the most bytes of a command, which is one argument to the shell: the
	// kernel takes at most 128 KiB, and the service may put something before it.
	longest = 112 << 10
	// inline is the most bytes of content that go with the command.
	inline = 48 << 10
	prefix = "sandbox-broker:"
)

var (
	// ErrUnknown says that the sandbox knows nothing of the program.
	ErrUnknown = errors.New("the sandbox does not know this program")
	// ErrEnded says that the program has ended, or does not take what it was to be
	// given.
	ErrEnded = errors.New("the program has ended")
	// ErrRefused says that the process belongs to another user.
	ErrRefused = errors.New("the process cannot be signalled")
)

// Runner is one sandbox, as its service lets it be used.
type Runner interface {
	// Run runs a command of the shell that ends within timeout, and returns its
	// output.
	Run(ctx context.Context, command string, timeout time.Duration) (string, error)
	// Upload writes a file, as a user that need not be that of commands.
	Upload(ctx context.Context, path string, content []byte) error
}

// call is what calls.py reads.
type call struct {
	Do     string   `json:"do"`
	ID     string   `json:"id"`
	Argv   []string `json:"argv,omitempty"`
	Source string   `json:"source"`
	Suffix string   `json:"suffix"`
	Dir    string   `json:"dir"`
	Places []string `json:"places,omitempty"`

	Env       map[string]string    `json:"env"`
	Keep      int64                `json:"keep"`
	Stdin     bool                 `json:"stdin"`
	Hidden    bool                 `json:"hidden"`
	Kernel    string               `json:"kernel"`
	Terminal  *Size                `json:"terminal"`
	Artifacts *supervise.Artifacts `json:"artifacts"`
	// Seconds.
	Timeout float64 `json:"timeout"`
	Grace   float64 `json:"grace"`
	Wait    float64 `json:"wait"`
	Linger  float64 `json:"linger"`
	Stdout  int64   `json:"stdout"`
	Stderr  int64   `json:"stderr"`
	Piece   int     `json:"piece"`
	Most    int     `json:"most"`
	Result  bool    `json:"result"`

	Data    []byte `json:"data"`
	Offset  int64  `json:"offset"`
	End     bool   `json:"end"`
	Signal  string `json:"signal"`
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// answer is what calls.py says.
type answer struct {
	Unknown   bool            `json:"unknown"`
	Ended     bool            `json:"ended"`
	Refused   bool            `json:"refused"`
	Stdout    []byte          `json:"stdout"`
	StdoutAt  int64           `json:"stdout_at"`
	Stderr    []byte          `json:"stderr"`
	StderrAt  int64           `json:"stderr_at"`
	Done      *supervise.Done `json:"done"`
	Result    string          `json:"result"`
	Kills     int64           `json:"kills"`
	State     State           `json:"state"`
	States    []State         `json:"states"`
	Taken     int64           `json:"taken"`
	Workspace string          `json:"workspace"`
	Note      string          `json:"note"`
}

// Setup makes the first of these directories that can be had, and returns it.
func Setup(ctx context.Context, r Runner, places ...string) (string, error) {
	workspace, _, err := SetupWithNote(ctx, r, "", places...)
	return workspace, err
}

// SetupWithNote is Setup for a service that keeps nothing for us: the first note that a sandbox
// is given stays there, and is returned from then on. Code in the sandbox can change it, or
// remove it.
func SetupWithNote(ctx context.Context, r Runner, note string, places ...string) (workspace, kept string, err error) {
	a, err := ask(ctx, r, call{Do: "setup", Places: places, Source: note})
	if errors.Is(err, ErrUnknown) {
		return "", "", fmt.Errorf("none of the directories %s can be written to", strings.Join(places, ", "))
	}
	return a.Workspace, a.Note, err
}

// ask has calls.py do something.
func ask(ctx context.Context, r Runner, c call) (answer, error) {
	var a answer
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	output, err := send(ctx, r, programs, c)
	if err == nil {
		err = parse(output, &a)
	}
	switch {
	case err != nil:
	case a.Unknown:
		err = ErrUnknown
	case a.Ended:
		err = ErrEnded
	case a.Refused:
		err = ErrRefused
	}
	return a, err
}

// pack makes a command of a script, that takes an argument: see request.py.
func pack(script string) string {
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	_, _ = io.WriteString(w, request+"\n\n"+script) // a buffer takes everything
	_ = w.Close()
	return "python3 -I -S -c 'import base64,zlib;exec(zlib.decompress(base64.b64decode(\"" + encode(packed.Bytes()) + "\")))' "
}

// send runs a script in the sandbox, with a request as its argument. One that is too long
// for that goes ahead as a file, which the script removes.
func send(ctx context.Context, r Runner, script string, request any) ([]byte, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	argument := encode(text)
	if len(script)+len(argument) > longest {
		file := scratch(rand.Text())
		if err := r.Upload(ctx, file, text); err != nil {
			return nil, err
		}
		argument = file
	}
	output, err := r.Run(ctx, script+argument, wait+5*time.Second)
	return []byte(output), err
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// parse finds the answer, which a shell may have said something before.
func parse(output []byte, value any) error {
	_, text, ok := bytes.Cut(output, []byte(prefix))
	if !ok {
		return fmt.Errorf("the sandbox answered %.200q", output)
	}
	if err := json.Unmarshal(bytes.TrimSpace(text), value); err != nil {
		return fmt.Errorf("the sandbox's answer was cut: %w", err)
	}
	return nil
}

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
	// Hidden keeps it from the list of commands: it is one of ours.
	Hidden bool
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
		Hidden: p.Hidden, Terminal: p.Terminal, Artifacts: p.Artifacts, Timeout: p.Timeout.Seconds(), Grace: p.Grace.Seconds(), Most: most,
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

// Cell has the interpreter of that name run a cell, if it does not yet, and waits for output
// beyond these offsets, or for the end with its result. ErrEnded means that the interpreter
// has ended.
func Cell(ctx context.Context, r Runner, kernel, id, request string, stdout, stderr int64) (Progress, error) {
	return progress(ask(ctx, r, call{
		Do: "cell", ID: id, Kernel: kernel, Source: request, Stdout: stdout, Stderr: stderr,
		Wait: wait.Seconds(), Linger: linger.Seconds(), Piece: piece, Result: true,
	}))
}

// Recover tells those who ask for programs that ran when a sandbox was stopped that they
// have ended.
func Recover(ctx context.Context, r Runner) error {
	_, err := ask(ctx, r, call{Do: "recover"})
	return err
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

// Box is one sandbox.
type Box struct {
	Runner
	// ID is that of the instance.
	ID string
	// Workspace is where code works: remote.Workspace, where code can make that.
	Workspace string
	// Env is the environment of the instance.
	Env map[string]string
}

// Service is what a provider knows of its service.
type Service interface {
	// Box finds the sandbox of an instance.
	Box(ctx context.Context, instanceID string) (Box, error)
	// Worth says whether a call that failed so is worth another try, and after what pause.
	Worth(err error) (after time.Duration, again bool)
	// Refused says that a call that failed so has certainly changed nothing.
	Refused(err error) bool
	// Explain makes an error of the broker of one of the service. What Known says yes to is
	// returned as it is.
	Explain(ctx context.Context, err error, doing string) error
}

// Known says whether a call that asked the sandbox came to an answer: what the sandbox says
// of a program is none that a repeated call would change.
func Known(err error) bool {
	_, refused := errors.AsType[*sdk.Error](err)
	return err == nil || refused || errors.Is(err, ErrUnknown) || errors.Is(err, ErrEnded) || errors.Is(err, ErrRefused)
}

// Ask repeats a call to a sandbox until it has an answer.
func Ask[T any](ctx context.Context, s Service, call func(context.Context) (T, error)) (T, error) {
	var answered error
	value, err := remote.Again(ctx, retry.Policy{}, s.Worth, func(ctx context.Context) (T, error) {
		value, err := call(ctx)
		if answered = err; Known(err) {
			return value, nil
		}
		return value, err
	})
	if err == nil {
		err = answered
	}
	return value, err
}

// Environment is that of the instance, and more.
func (b Box) Environment(more ...map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, b.Env)
	for _, m := range more {
		maps.Copy(all, m)
	}
	return all
}

// Real is where a path of the contract is in a sandbox whose code may not make the
// directory that the contract names.
func (b Box) Real(name string) string { return moved(name, remote.Workspace, b.Workspace) }

// Shown is the opposite.
func (b Box) Shown(name string) string { return moved(name, b.Workspace, remote.Workspace) }

func moved(name, from, to string) string {
	clean := path.Clean(name)
	if from == to || clean != from && !strings.HasPrefix(clean, from+"/") {
		return name
	}
	return to + clean[len(from):]
}

// Absolute is a path as the sandbox resolves it; empty for the workspace.
func (b Box) Absolute(name string) string {
	if path.IsAbs(name) {
		return b.Real(path.Clean(name))
	}
	return path.Join(b.Workspace, name)
}
