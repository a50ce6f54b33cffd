package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Code has the flags for code that runs wherever it fits.
type Code struct {
	File     string        `short:"f" group:"Code" placeholder:"FILE" help:"The file with code, for those who would rather write a flag; - for standard input."`
	Arg      []string      `short:"a" group:"Code" sep:"none" placeholder:"NAME=TEXT" help:"An argument for main: NAME=TEXT gives a string, NAME:=JSON any JSON value. Again for more."`
	Args     string        `group:"Code" placeholder:"JSON" help:"All arguments for main as a JSON object; --arg adds to it."`
	Language string        `short:"l" group:"Code" placeholder:"NAME" help:"The language. Default: by the file's extension; python for standard input."`
	Wait     time.Duration `group:"Code" placeholder:"DURATION" help:"How long it may wait for its turn when a quota has no room, such as 30s."`
	Session  string        `short:"s" group:"Code" placeholder:"NAME" help:"Run in this session's instance and keep it." complete:"sessions"`
	Provider string        `short:"p" group:"Code" placeholder:"ID" help:"Run at this provider and at no other." complete:"providers"`
	JSON     bool          `name:"json" group:"Code" help:"Print the broker's whole answer instead of the output."`
}

// Run runs code wherever it fits.
type Run struct {
	Name    string        `arg:"" optional:"" name:"file" help:"A file with code, or - for standard input." complete:"files"`
	Timeout time.Duration `placeholder:"DURATION" help:"How long the code may run, such as 10s."`
	Detach  bool          `short:"d" help:"Leave the code running, and print the ID of its execution: see logs and executions."`
	Webhook string        `placeholder:"URL" help:"Have the result posted there; with --detach, where the operator allows it."`
	Code
	Connection
}

// Help is shown below the usage.
func (*Run) Help() string {
	return `Output and errors of the code go to the same streams as here while it runs, and
what main returned follows as JSON. Ctrl-C interrupts the code in its sandbox and
shows how it ends; a second one does not wait for that. The exit code is that of
the code, or

  124  it ran out of time
  126  the code policy blocked it
  130  it was cancelled, as by Ctrl-C here
  137  it ran out of memory
    3  the broker is not there or refused
    2  the command line makes no sense

Examples:
  sandbox-broker run hello.py --arg name=World --arg count:=3
  sandbox-broker run --session report --provider self_managed step1.py
  sandbox-broker logs --follow $(sandbox-broker run --detach long.py)
  echo 'print(6 * 7)' | sandbox-broker run -`
}

// Run posts the code to the broker and shows what comes back.
func (c *Run) Run(ctx context.Context, console *Console) error {
	e := &execution{Code: c.Code, name: c.Name, timeout: c.Timeout, connection: &c.Connection, console: console}
	if c.Detach {
		return e.detach(ctx, c.Webhook)
	}
	if c.Webhook != "" {
		return usageErrorf("--webhook goes with --detach")
	}
	return e.run(ctx)
}

// execution is code that is run once.
type execution struct {
	Code
	name       string
	timeout    time.Duration
	connection *Connection
	console    *Console

	broker *client.Client
}

func (c *execution) run(ctx context.Context) error {
	request, err := c.request(c.console.In)
	if err != nil {
		return usageError{err}
	}
	if c.broker, err = c.connection.Client(c.console); err != nil {
		return err
	}
	var end client.Execution
	if c.JSON {
		end, err = c.whole(ctx, request)
	} else {
		end, err = c.stream(ctx, request)
	}
	if err != nil {
		Tell(c.console.Err, err)
		return ExitCode(ExitNoAnswer)
	}
	if code := exitCodeOf(end); code != 0 {
		return ExitCode(code)
	}
	return nil
}

// whole prints the broker's answer as it is. A signal ends the request, and with
// it the execution.
func (c *execution) whole(ctx context.Context, request client.ExecuteRequest) (client.Execution, error) {
	ctx, stop := untilSignal(ctx)
	defer stop()
	var end client.Execution
	resp, err := c.broker.Do(ctx, client.Request{Method: http.MethodPost, Path: "/api/v1/execute", Body: request})
	if err != nil {
		return end, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, client.MaxAnswer))
	if err != nil {
		return end, fmt.Errorf("the broker's answer broke off: %w", err)
	}
	if err := json.Unmarshal(answer, &end); err != nil || end.Status == "" {
		return end, errors.New("what answers is no sandbox broker")
	}
	_, err = fmt.Fprintf(c.console.Out, "%s\n", answer)
	return end, err
}

// file is where the code is, whichever way it was named.
func (c *execution) file() (string, error) {
	switch {
	case c.name == "" && c.File == "":
		return "", errors.New("name a file with code, or - for standard input")
	case c.name != "" && c.File != "":
		return "", fmt.Errorf("name one file: both %s and --file %s are there", c.name, c.File)
	case c.name != "":
		return c.name, nil
	default:
		return c.File, nil
	}
}

// request reads the code and the arguments.
func (c *execution) request(in io.Reader) (client.ExecuteRequest, error) {
	request := client.ExecuteRequest{Language: c.Language, Timeout: c.timeout.Seconds(), SessionID: c.Session, Provider: c.Provider, WaitMS: c.Wait.Milliseconds()}
	file, err := c.file()
	if err != nil {
		return request, err
	}
	if file == "-" && c.connection.TokenFile == "-" {
		return request, errors.New("standard input is one thing: both the code and --token-file are -")
	}
	var code []byte
	if file == "-" {
		code, err = io.ReadAll(in)
	} else {
		code, err = os.ReadFile(file)
	}
	if err != nil {
		return request, err
	}
	if !utf8.Valid(code) {
		return request, fmt.Errorf("%s is not UTF-8", file)
	}
	request.Code = string(code)
	if request.Language == "" {
		if request.Language, err = languageOf(file); err != nil {
			return request, err
		}
	}
	if c.timeout < 0 {
		return request, errors.New("--timeout must be more than 0")
	}
	if c.Wait < 0 {
		return request, errors.New("--wait must be more than 0")
	}
	arguments, err := argumentsOf(c.Args, c.Arg)
	request.Arguments = client.JSONObject(arguments)
	return request, err
}

var extensions = map[string]sdk.Language{
	".py": sdk.Python,
	".js": sdk.JavaScript, ".mjs": sdk.JavaScript, ".cjs": sdk.JavaScript,
	".ts": sdk.TypeScript,
	".sh": sdk.Bash, ".bash": sdk.Bash,
	".r":    sdk.R,
	".java": sdk.Java,
}

func languageOf(file string) (string, error) {
	if file == "-" {
		return string(sdk.Python), nil
	}
	language, ok := extensions[strings.ToLower(filepath.Ext(file))]
	if !ok {
		return "", fmt.Errorf("the extension of %s tells no language; use --language (extensions known: %s)",
			file, strings.Join(slices.Sorted(maps.Keys(extensions)), " "))
	}
	return string(language), nil
}

// argumentsOf puts arguments together, nil if there are none. The two forms of
// --arg are those of HTTPie: what is meant never depends on what the text looks
// like.
func argumentsOf(object string, pairs []string) (json.RawMessage, error) {
	if object == "" && len(pairs) == 0 {
		return nil, nil
	}
	all := map[string]json.RawMessage{}
	if object != "" {
		if err := json.Unmarshal([]byte(object), &all); err != nil || all == nil {
			return nil, errors.New("--args must be a JSON object")
		}
	}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		name, isJSON := strings.CutSuffix(name, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("--arg %s: write NAME=TEXT or NAME:=JSON", pair)
		}
		value := json.RawMessage(text)
		if !isJSON {
			value, _ = json.Marshal(text) // a string always can be
		} else if !json.Valid(value) {
			return nil, fmt.Errorf("--arg %s: what follows := is not JSON", pair)
		}
		all[name] = value
	}
	return json.Marshal(all)
}

func exitCodeOf(e client.Execution) int {
	switch sdk.Status(e.Status) {
	case sdk.StatusSucceeded:
		return 0
	case sdk.StatusTimeout:
		return exitTimeout
	case sdk.StatusBlocked:
		return exitBlocked
	case sdk.StatusOutOfMemory:
		return exitOutOfMemory
	case sdk.StatusCancelled:
		return exitCancelled
	default:
		if code := e.ExitCode & 0xff; code != 0 {
			return code
		}
		return 1
	}
}
