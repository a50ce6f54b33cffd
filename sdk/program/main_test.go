package program_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/program"
)

// recorder keeps what reaches the broker.
type recorder struct{ stdout, stderr bytes.Buffer }

func (r *recorder) Stdout(p []byte) error { r.stdout.Write(p); return nil }
func (r *recorder) Stderr(p []byte) error { r.stderr.Write(p); return nil }

func (r *recorder) Artifact(sdk.Artifact) error { return nil }

// outcome is what an execution came to. The working directory is called
// /workspace in it, whatever its real name.
type outcome struct {
	sdk.ExecuteResult
	stdout, stderr string
}

// store keeps a program where its code does not look.
func store(t *testing.T, p *program.Program) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program"+p.Suffix)
	assert.NilError(t, os.WriteFile(file, []byte(p.Source), 0o600))
	return file
}

func start(t *testing.T, dir string, argv ...string) (stdout, stderr []byte, exitCode int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, errOut bytes.Buffer
	command.Dir, command.Stdout, command.Stderr = dir, &out, &errOut
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "LC_ALL=C.UTF-8")
	err := command.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		assert.NilError(t, err)
	}
	return out.Bytes(), errOut.Bytes(), command.ProcessState.ExitCode()
}

// execute runs a request in a directory of its own.
func execute(t *testing.T, req sdk.ExecuteRequest) outcome {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	assert.NilError(t, err)
	if req.OutputLimit == 0 {
		req.OutputLimit = 1 << 20
	}
	p, err := program.ForProcess(req, program.Options{Dir: dir})
	assert.NilError(t, err)
	stdout, stderr, code := start(t, dir, p.Command(store(t, p))...)
	var rec recorder
	output := p.Output(&rec)
	pieces := iotest.HalfReader(bytes.NewReader(stdout))
	for piece := make([]byte, 97); ; {
		n, err := pieces.Read(piece)
		assert.NilError(t, output.Stdout(piece[:n]))
		if err != nil {
			break
		}
	}
	assert.NilError(t, output.Stderr(stderr))
	result, err := output.Finish(code)
	assert.NilError(t, err)
	return outcome{result, rec.stdout.String(), strings.ReplaceAll(rec.stderr.String(), dir, "/workspace")}
}

// programCase is one program and what it comes to. The zero value of each field
// that is compared stands for success without output.
type programCase struct {
	name      string
	language  sdk.Language
	code      string
	arguments string
	env       map[string]string
	exit      int
	result    string
	stdout    string
	stderr    string // a part of it
}

func (c programCase) check(t *testing.T) {
	t.Helper()
	req := sdk.ExecuteRequest{Language: c.language, Code: c.code, Env: c.env}
	if c.arguments != "" {
		req.Arguments = json.RawMessage(c.arguments)
	}
	got := execute(t, req)
	status := sdk.StatusSucceeded
	if c.exit != 0 {
		status = sdk.StatusFailed
	}
	assert.Check(t, is.Equal(got.Status, status), "%s %s", got.Detail, got.stderr)
	assert.Check(t, is.Equal(got.ExitCode, c.exit))
	assert.Check(t, is.Equal(string(got.Result), c.result))
	assert.Check(t, is.Equal(got.stdout, c.stdout))
	if c.stderr == "" {
		assert.Check(t, is.Equal(got.stderr, ""))
	}
	assert.Check(t, is.Contains(got.stderr, c.stderr))
}
