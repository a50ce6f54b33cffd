// Package supervisor runs programs in a sandbox through envd so that nothing of them is
// left when they end. envd kills a process and not what it has started, and does not
// say why one was killed; so what envd starts is a small Python program that starts the
// program proper, holds on to its whole tree of processes, has the time limit, and
// reports. The sandbox needs python3 for it.
//
// The report comes in frames among the output; Output takes them out again. What runs
// cannot learn their marker: it may not look into the supervisor.
//
// This package has the two programs and their two ways of speech. Starting them, and
// what a report means for an execution or a command, is the provider's.
package supervisor

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

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/frames"
)

var (
	//go:embed supervisor.py
	supervisorProgram string
	//go:embed tree.py
	treeProgram string
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
	// Terminal says that envd gives it one.
	Terminal bool
	// Artifacts asks for the files that it makes; nil for none.
	Artifacts *Artifacts
}

// Artifacts says which files are wanted beside those below artifacts/.
type Artifacts struct {
	Files []string `json:"files"`
	Most  int      `json:"most"`
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

// Program is what envd is to start. If upload is not nil, it is to be stored as file
// before.
func (r *Run) Program() (program envd.Program, file string, upload []byte) {
	program = envd.Program{Cmd: "python3", Args: []string{"-I", "-c", supervisorProgram}, Cwd: "/", Envs: map[string]string{tagVariable: r.Tag}}
	if inline := compress(r.request); len(inline) <= maxInline {
		program.Envs[requestVariable] = inline
		return program, "", nil
	}
	file = "/tmp/.sandbox-" + r.Tag
	program.Envs[fileVariable] = file
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
func Signal(pid int, name string) envd.Program {
	return tree("signal", strconv.Itoa(pid), name)
}

// Interrupt is a program that does what Ctrl-C would.
func Interrupt(pid int) envd.Program { return tree("interrupt", strconv.Itoa(pid)) }

// Sweep is a program that kills what is left of a job whose supervisor is gone.
func Sweep(tag string) envd.Program { return tree("sweep", tag) }

func tree(args ...string) envd.Program {
	return envd.Program{Cmd: "python3", Args: append([]string{"-I", "-c", treeProgram}, args...), Cwd: "/"}
}

// Report is what a supervisor tells.
type Report struct {
	Started bool
	// Refused names what the job cannot be started with: "cwd" or "argv"; Why says why.
	Refused string
	// Exit code once it has ended, 128 plus the signal when one ended it.
	Exit *int
	// Why it was ended: "timeout", "stopped", or nothing.
	Why     string
	Seconds float64
	// Left counts processes that could not be killed.
	Left int
	// Memory says that the kernel killed something meanwhile for want of memory.
	Memory bool
	// Kills is how many processes of the sandbox it has killed so ever.
	Kills int64
	// Peak memory of the largest process, in bytes.
	Peak  int64
	Files []File
}

// File is an artifact; its size is -1 if there is no such regular file.
type File struct {
	Name string
	Size int64
}

// Reasons in Report.Why.
const (
	Timeout = "timeout"
	Stopped = "stopped"
)

// maxFrame bounds a report: a hundred names of files are the most that is in one.
const maxFrame = 1 << 20

// Output stands between envd and whoever wants the standard output of the job: it takes
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
