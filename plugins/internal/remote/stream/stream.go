// Package stream runs programs under a supervisor (package supervise) where the service of
// a sandbox streams what a process prints. The supervisor runs in the foreground, and the
// output of the program is its own; what it reports comes in frames among that, which
// Output takes out again. What runs cannot learn their marker: it may not look into the
// supervisor.
//
// This package has the programs and their ways of speech. Starting them in a sandbox is
// the provider's.
package stream

import (
	"bytes"
	"compress/zlib"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/frames"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
)

var (
	//go:embed stream.py
	streamProgram string
	//go:embed tree.py
	treeProgram string

	supervisorProgram, signalProgram = supervise.Program(streamProgram), supervise.Program(treeProgram)
)

// Variables of the environment.
const (
	requestVariable = "SANDBOX_REQUEST"
	fileVariable    = "SANDBOX_REQUEST_FILE"
	tagVariable     = "SANDBOX_EXECUTION"
)

// Job is a program to run.
type Job struct {
	Argv []string
	Env  map[string]string
	Cwd  string
	// Timeout after which it is killed; 0 for none.
	Timeout time.Duration
	// File, if given, is made before with Source in it, and removed afterwards.
	File, Source string
	// Stdin keeps standard input; else it is empty.
	Stdin bool
	// Terminal says that the service gives it one.
	Terminal bool
	// Artifacts asks for the files that it makes; nil for none.
	Artifacts *supervise.Artifacts
}

// Run is a job that is about to start.
type Run struct {
	// Tag tells its processes from others.
	Tag    string
	marker string
	// Request is what the supervisor reads.
	request []byte
}

// maxInline is the most that goes into one variable: the kernel takes 128 KiB.
const maxInline = 96 << 10

// NewRun prepares a job.
func NewRun(job Job) (*Run, error) {
	env := job.Env
	if env == nil {
		env = map[string]string{}
	}
	run := &Run{Tag: randomHex(), marker: frames.NewMarker()}
	text, err := json.Marshal(map[string]any{
		"marker": run.marker, "argv": job.Argv, "env": env, "cwd": job.Cwd, "timeout": job.Timeout.Seconds(),
		"file": job.File, "source": job.Source, "empty_stdin": !job.Stdin && !job.Terminal, "terminal": job.Terminal, "artifacts": job.Artifacts,
	})
	if err != nil {
		return nil, fmt.Errorf("encode a job: %w", err)
	}
	run.request = text
	return run, nil
}

func randomHex() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// Program is what the service is to start.
type Program struct {
	Argv []string
	Env  map[string]string
}

// Program starts the job. If upload is not nil, it is to be stored as file before.
func (r *Run) Program() (program Program, file string, upload []byte) {
	program = Program{Argv: []string{"python3", "-I", "-c", supervisorProgram}, Env: map[string]string{tagVariable: r.Tag}}
	if inline := compress(r.request); len(inline) <= maxInline {
		program.Env[requestVariable] = inline
		return program, "", nil
	}
	file = "/tmp/.sandbox-" + r.Tag
	program.Env[fileVariable] = file
	return program, file, r.request
}

func compress(text []byte) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write(text) // a buffer takes everything
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// Signal is a program that sends a signal, by its name, to all processes of the job
// whose supervisor has that PID.
func Signal(pid int, name string) Program {
	return tree("signal", strconv.Itoa(pid), name)
}

// Interrupt is a program that does what Ctrl-C would.
func Interrupt(pid int) Program { return tree("interrupt", strconv.Itoa(pid)) }

// Sweep is a program that kills what is left of a job whose supervisor is gone.
func Sweep(tag string) Program { return tree("sweep", tag) }

func tree(args ...string) Program {
	return Program{Argv: append([]string{"python3", "-I", "-c", signalProgram}, args...)}
}

// Report is what a supervisor tells: that the program runs, or how it has ended.
type Report struct {
	Started bool
	Done    *supervise.Done
}

// maxFrame bounds a report: a hundred names of files are the most that is in one.
const maxFrame = 1 << 20

// Output stands between the service and whoever wants the standard output of the job: it takes
// the reports out.
func (r *Run) Output(out func([]byte) error, report func(Report)) *frames.Filter {
	return frames.NewFilter(r.marker, maxFrame, out, func(payload []byte) bool {
		var told Report
		if json.Unmarshal(payload, &told) != nil {
			return false
		}
		report(told)
		return true
	})
}
