// Package helper runs programs in a sandbox whose service can do no more than run a
// command of the shell, for some seconds, and give its output when it has ended.
//
// A small script travels with each call. It starts a program under a supervisor that
// survives the call, enforces the time limit, and ends all that the program started;
// further calls wait for output as it appears, byte for byte, or stop the program.
// Every call can be repeated: a program with the same ID is not started twice.
//
// How a call reaches the sandbox is not known here; that is Runner's business.
package helper

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

//go:embed helper.py
var script []byte

const (
	// wait is how long a call waits for output, and linger for more of it.
	wait   = 10 * time.Second
	linger = 40 * time.Millisecond
	// piece is the most bytes of each stream in one answer.
	piece = 1 << 20
	// most is the output at which a program is stopped: it lies on the sandbox's disk.
	most = 64 << 20
	// inline is the most bytes of source that go with the command: one argument of
	// a command has at most 128 KiB.
	inline = 48 << 10
	prefix = "sandbox-broker:"
)

// ErrUnknown says that the sandbox knows nothing of the program.
var ErrUnknown = errors.New("the sandbox does not know this execution")

// Runner is one sandbox, as its service lets it be used.
type Runner interface {
	// Run runs a command of the shell that ends within timeout, and returns its
	// output.
	Run(ctx context.Context, command string, timeout time.Duration) (string, error)
	// Upload writes a file.
	Upload(ctx context.Context, path string, content []byte) error
}

// Program is what is to be run.
type Program struct {
	// ID names it in the sandbox: letters and digits that nobody has used before.
	ID string
	// Argv is the command; "{}" in it stands for the file with Source.
	Argv           []string
	Source, Suffix string
	Dir            string
	Timeout        time.Duration
}

// Progress is what a program has printed since the last call, and how it ended.
type Progress struct {
	Stdout, Stderr []byte
	// Done is nil while it runs, or while there is more output.
	Done *Done
}

// Done says how a program ended.
type Done struct {
	// Exit is 128 plus the signal if one ended it.
	Exit int `json:"exit"`
	// Reason is why it was stopped: see the constants.
	Reason string `json:"reason"`
	// Error says why it did not start.
	Error   string  `json:"error"`
	Seconds float64 `json:"seconds"`
	// Memory in bytes is what the largest of its processes had.
	Memory int64 `json:"memory"`
}

// The values of Done.Reason, beside "".
const (
	Timeout   = "timeout"
	Cancelled = "cancelled"
	Output    = "output"
	Memory    = "memory"
)

type call struct {
	Do     string   `json:"do"`
	ID     string   `json:"id"`
	Argv   []string `json:"argv,omitempty"`
	Source string   `json:"source"`
	Upload string   `json:"upload"`
	Suffix string   `json:"suffix"`
	Dir    string   `json:"dir"`
	Places []string `json:"places,omitempty"`
	// Seconds.
	Timeout float64 `json:"timeout"`
	Wait    float64 `json:"wait"`
	Linger  float64 `json:"linger"`
	Stdout  int64   `json:"stdout"`
	Stderr  int64   `json:"stderr"`
	Piece   int     `json:"piece"`
	Most    int     `json:"most"`
}

type answer struct {
	Unknown   bool   `json:"unknown"`
	Stdout    []byte `json:"stdout"`
	Stderr    []byte `json:"stderr"`
	Done      *Done  `json:"done"`
	Workspace string `json:"workspace"`
}

// Setup makes the first of these directories that can be had, and returns it.
func Setup(ctx context.Context, r Runner, places ...string) (string, error) {
	a, err := send(ctx, r, call{Do: "setup", Places: places})
	if errors.Is(err, ErrUnknown) {
		return "", fmt.Errorf("none of the directories %s can be written to", strings.Join(places, ", "))
	}
	return a.Workspace, err
}

// Start starts a program and returns its first output.
func Start(ctx context.Context, r Runner, p Program) (Progress, error) {
	c := call{Do: "run", ID: p.ID, Argv: p.Argv, Source: p.Source, Suffix: p.Suffix, Dir: p.Dir, Timeout: p.Timeout.Seconds(), Most: most}
	if len(p.Source) > inline {
		c.Source, c.Upload = "", "/tmp/.sandbox-broker-"+p.ID
		if err := r.Upload(ctx, c.Upload, []byte(p.Source)); err != nil {
			return Progress{}, err
		}
	}
	return watch(ctx, r, c)
}

// Watch waits for output beyond these offsets, or for the end. ErrUnknown means that
// the program was never started.
func Watch(ctx context.Context, r Runner, id string, stdout, stderr int64) (Progress, error) {
	return watch(ctx, r, call{Do: "watch", ID: id, Stdout: stdout, Stderr: stderr})
}

func watch(ctx context.Context, r Runner, c call) (Progress, error) {
	c.Wait, c.Linger, c.Piece = wait.Seconds(), linger.Seconds(), piece
	a, err := send(ctx, r, c)
	return Progress{a.Stdout, a.Stderr, a.Done}, err
}

// Cancel stops a program and returns when nothing of it is left.
func Cancel(ctx context.Context, r Runner, id string) error {
	_, err := send(ctx, r, call{Do: "cancel", ID: id, Wait: 5})
	return err
}

func send(ctx context.Context, r Runner, c call) (answer, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return answer{}, err
	}
	command := "python3 -I -c 'import base64;exec(base64.b64decode(\"" + base64.StdEncoding.EncodeToString(script) + "\"))' " + base64.StdEncoding.EncodeToString(text)
	output, err := r.Run(ctx, command, wait+5*time.Second)
	if err != nil {
		return answer{}, err
	}
	return parse([]byte(output))
}

// parse finds the answer, which a shell may have said something before.
func parse(output []byte) (answer, error) {
	var a answer
	_, text, ok := bytes.Cut(output, []byte(prefix))
	if !ok {
		return a, fmt.Errorf("the sandbox answered %.200q", output)
	}
	if err := json.Unmarshal(bytes.TrimSpace(text), &a); err != nil {
		return a, fmt.Errorf("the sandbox's answer was cut: %w", err)
	}
	if a.Unknown {
		return a, ErrUnknown
	}
	return a, nil
}
