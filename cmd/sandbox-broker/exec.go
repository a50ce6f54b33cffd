package main

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

// Exit codes of exec beside that of the code itself. They are those of timeout(1)
// and of a process that was killed; 3 is our own.
const (
	exitTimeout     = 124
	exitBlocked     = 126
	exitCancelled   = 130
	exitOutOfMemory = 137
	exitNoAnswer    = 3
)

type execCommand struct {
	Code     string        `arg:"" optional:"" name:"file" help:"A file with code, or - for standard input."`
	File     string        `short:"f" placeholder:"FILE" help:"The same, for those who would rather write a flag."`
	Arg      []string      `short:"a" sep:"none" placeholder:"NAME=TEXT" help:"An argument for main: NAME=TEXT gives a string, NAME:=JSON any JSON value. Again for more."`
	Args     string        `placeholder:"JSON" help:"All arguments for main as a JSON object; --arg adds to it."`
	Language string        `short:"l" placeholder:"NAME" help:"The language. Default: by the file's extension; python for standard input."`
	Timeout  time.Duration `placeholder:"DURATION" help:"How long the code may run, such as 10s."`
	Wait     time.Duration `placeholder:"DURATION" help:"How long it may wait for its turn when a quota has no room, such as 30s."`
	Session  string        `short:"s" placeholder:"NAME" help:"Run in this session's instance and keep it."`
	Provider string        `short:"p" placeholder:"ID" help:"Run at this provider and at no other."`
	JSON     bool          `name:"json" help:"Print the broker's whole answer instead of the output."`
	brokerFlags

	broker *client.Client
}

// Help is shown below the usage.
func (*execCommand) Help() string {
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
  sandbox-broker exec hello.py --arg name=World --arg count:=3
  sandbox-broker exec --session report --provider self_managed --file step1.py
  echo 'print(6 * 7)' | sandbox-broker exec -`
}

// Run posts the code to the broker and shows what comes back.
func (c *execCommand) Run(ctx context.Context, term *terminal) error {
	request, err := c.request(term.in)
	if err == nil {
		c.broker, err = c.newClient()
	}
	if err != nil {
		fmt.Fprintf(term.err, "sandbox-broker: %v\n", err)
		return exitCode(exitUsage)
	}
	var execution client.Execution
	if c.JSON {
		execution, err = c.whole(ctx, term, request)
	} else {
		execution, err = c.stream(ctx, term, request)
	}
	if err != nil {
		fmt.Fprintf(term.err, "sandbox-broker: %v\n", err)
		return exitCode(exitNoAnswer)
	}
	if code := exitCodeOf(execution); code != 0 {
		return exitCode(code)
	}
	return nil
}

// whole prints the broker's answer as it is. A signal ends the request, and with
// it the execution.
func (c *execCommand) whole(ctx context.Context, term *terminal, request client.ExecuteRequest) (client.Execution, error) {
	ctx, stop := untilSignal(ctx, io.Discard)
	defer stop()
	var execution client.Execution
	resp, err := c.broker.Do(ctx, client.Request{Method: http.MethodPost, Path: "/api/v1/execute", Body: request})
	if err != nil {
		return execution, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, client.MaxAnswer))
	if err != nil {
		return execution, fmt.Errorf("the broker's answer broke off: %w", err)
	}
	if err := json.Unmarshal(answer, &execution); err != nil || execution.Status == "" {
		return execution, fmt.Errorf("what answers at %s is no sandbox broker", c.URL)
	}
	_, err = fmt.Fprintf(term.out, "%s\n", answer)
	return execution, err
}

// file is where the code is, whichever way it was named.
func (c *execCommand) file() (string, error) {
	switch {
	case c.Code == "" && c.File == "":
		return "", errors.New("name a file with code, or - for standard input")
	case c.Code != "" && c.File != "":
		return "", fmt.Errorf("name one file: both %s and --file %s are there", c.Code, c.File)
	case c.Code != "":
		return c.Code, nil
	default:
		return c.File, nil
	}
}

// request reads the code and the arguments.
func (c *execCommand) request(in io.Reader) (client.ExecuteRequest, error) {
	request := client.ExecuteRequest{Language: c.Language, Timeout: c.Timeout.Seconds(), SessionID: c.Session, Provider: c.Provider, WaitMS: c.Wait.Milliseconds()}
	file, err := c.file()
	if err != nil {
		return request, err
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
	if c.Timeout < 0 {
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
