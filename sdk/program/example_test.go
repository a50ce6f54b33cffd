package program_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/program"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

// cloud is the part of a provider that this example is about.
type cloud struct {
	service   service
	workspace string // the working directory of code, such as /workspace
	secrets   *redact.Redactor
}

// service is what many clouds offer: store a file in a sandbox, and run a command
// there, whose standard input is empty.
type service interface {
	Upload(ctx context.Context, sandbox, path, content string) error
	Run(ctx context.Context, sandbox string, argv []string, stdout, stderr func([]byte) error) (exitCode int, err error)
}

var errTimeout = errors.New("the time is over")

func (c *cloud) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	p, err := program.ForProcess(req, program.Options{Dir: c.workspace})
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	file := "/tmp/" + req.ExecutionID + p.Suffix // not where the code looks for its own files
	if err := c.service.Upload(ctx, req.InstanceID, file, p.Source); err != nil {
		return sdk.ExecuteResult{}, c.secrets.Error(err)
	}

	running, cancel := context.WithTimeoutCause(ctx, req.Timeout, errTimeout)
	defer cancel()
	output, began := p.Output(out), time.Now()
	exitCode, err := c.service.Run(running, req.InstanceID, p.Command(file), output.Stdout, output.Stderr)
	if errors.Is(context.Cause(running), errTimeout) {
		exitCode, err = 137, nil // Run has killed what it ran
	}
	if err != nil {
		return sdk.ExecuteResult{}, c.secrets.Error(err)
	}
	result, err := output.Finish(exitCode)
	result.Duration = time.Since(began)
	if errors.Is(context.Cause(running), errTimeout) {
		result.Status = sdk.StatusTimeout
	}
	return result, err
}

// A provider for a service that runs commands.
func ExampleForProcess() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	provider := &cloud{service: thisMachine{}, workspace: dir}
	var out printer
	result, err := provider.Execute(context.Background(), sdk.ExecuteRequest{
		InstanceID: "box-1", ExecutionID: "example", Language: sdk.Python, Timeout: 30 * time.Second, OutputLimit: 1 << 20,
		Code:      "def main(name):\n    print('working')\n    return {'message': f'Hello {name}!'}",
		Arguments: json.RawMessage(`{"name": "World"}`),
	}, &out)
	fmt.Println(result.Status, string(result.Result), err)
	// Output:
	// working
	// succeeded {"message": "Hello World!"} <nil>
}

// printer shows what the broker would get.
type printer struct{}

func (*printer) Stdout(p []byte) error       { _, err := os.Stdout.Write(p); return err }
func (*printer) Stderr(p []byte) error       { _, err := os.Stdout.Write(p); return err }
func (*printer) Artifact(sdk.Artifact) error { return nil }

// thisMachine is a service without a sandbox, for the example.
type thisMachine struct{}

func (thisMachine) Upload(_ context.Context, _, path, content string) error {
	return os.WriteFile(path, []byte(content), 0o600)
}

func (thisMachine) Run(ctx context.Context, _ string, argv []string, stdout, _ func([]byte) error) (int, error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out bytes.Buffer
	command.Stdout = &out
	err := command.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return 0, err
	}
	return command.ProcessState.ExitCode(), stdout(out.Bytes())
}
