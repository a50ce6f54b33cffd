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
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
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
}

// Setup makes the first of these directories that can be had, and returns it.
func Setup(ctx context.Context, r Runner, places ...string) (string, error) {
	a, err := ask(ctx, r, call{Do: "setup", Places: places})
	if errors.Is(err, ErrUnknown) {
		return "", fmt.Errorf("none of the directories %s can be written to", strings.Join(places, ", "))
	}
	return a.Workspace, err
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
