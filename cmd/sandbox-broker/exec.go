package main

import (
	"bytes"
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

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
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

// maxAnswer bounds what exec reads: two outputs of 8 MiB, escaped, twice.
const maxAnswer = 256 << 20

type execCommand struct {
	File     string        `arg:"" help:"A file with code, or - for standard input."`
	Arg      []string      `short:"a" sep:"none" placeholder:"NAME=TEXT" help:"An argument for main: NAME=TEXT gives a string, NAME:=JSON any JSON value. Again for more."`
	Args     string        `placeholder:"JSON" help:"All arguments for main as a JSON object; --arg adds to it."`
	Language string        `short:"l" placeholder:"NAME" help:"The language. Default: by the file's extension; python for standard input."`
	Timeout  time.Duration `placeholder:"DURATION" help:"How long the code may run, such as 10s."`
	Session  string        `placeholder:"NAME" help:"Run in this session's instance and keep it."`
	JSON     bool          `name:"json" help:"Print the broker's whole answer instead of the output."`
	URL      string        `env:"SANDBOX_BROKER_URL" default:"http://127.0.0.1:9385" help:"Where the broker is."`
	Token    string        `env:"SANDBOX_BROKER_TOKEN" default:"demo-token" help:"A tenant's token."`
}

// Help is shown below the usage.
func (*execCommand) Help() string {
	return `Output and errors of the code go to the same streams as here, and what main
returned follows as one line of JSON. The exit code is that of the code, or

  124  it ran out of time
  126  the code policy blocked it
  130  it was cancelled
  137  it ran out of memory
    3  the broker is not there or refused
    2  the command line makes no sense

Examples:
  sandbox-broker exec hello.py --arg name=World --arg count:=3
  echo 'print(6 * 7)' | sandbox-broker exec -`
}

// Run posts the code to the broker. A signal ends the request, and with it the
// execution.
func (c *execCommand) Run(ctx context.Context, term *terminal) error {
	request, err := c.request(term.in)
	if err != nil {
		fmt.Fprintf(term.err, "sandbox-broker: %v\n", err)
		return exitCode(exitUsage)
	}
	ctx, stop := untilSignal(ctx, io.Discard)
	defer stop()
	answer, err := c.post(ctx, request)
	if err != nil {
		fmt.Fprintf(term.err, "sandbox-broker: %v\n", err)
		return exitCode(exitNoAnswer)
	}
	var execution api.Execution
	if err := json.Unmarshal(answer, &execution); err != nil || execution.Status == "" {
		fmt.Fprintf(term.err, "sandbox-broker: what answers at %s is no sandbox broker\n", c.URL)
		return exitCode(exitNoAnswer)
	}
	if c.JSON {
		_, err = fmt.Fprintf(term.out, "%s\n", answer)
	} else {
		err = show(term, execution)
	}
	if err != nil {
		return err
	}
	if code := exitCodeOf(execution); code != 0 {
		return exitCode(code)
	}
	return nil
}

// request reads the code and the arguments.
func (c *execCommand) request(in io.Reader) (api.ExecuteRequest, error) {
	request := api.ExecuteRequest{Language: c.Language, Timeout: c.Timeout.Seconds(), SessionID: c.Session}
	var code []byte
	var err error
	if c.File == "-" {
		code, err = io.ReadAll(in)
	} else {
		code, err = os.ReadFile(c.File)
	}
	if err != nil {
		return request, err
	}
	if !utf8.Valid(code) {
		return request, fmt.Errorf("%s is not UTF-8", c.File)
	}
	request.Code = string(code)
	if request.Language == "" {
		if request.Language, err = languageOf(c.File); err != nil {
			return request, err
		}
	}
	if c.Timeout < 0 {
		return request, errors.New("--timeout must be more than 0")
	}
	arguments, err := argumentsOf(c.Args, c.Arg)
	request.Arguments = api.JSONObject(arguments)
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

// post returns the broker's answer to an execution that it took on.
func (c *execCommand) post(ctx context.Context, request api.ExecuteRequest) ([]byte, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+"/api/v1/execute", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no broker answers: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("the broker's answer broke off: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return answer, nil
	}
	var problem api.Problem
	if err := json.Unmarshal(answer, &problem); err != nil || problem.Code == "" {
		return nil, fmt.Errorf("the broker answered %s", resp.Status)
	}
	return nil, fmt.Errorf("%s %s: %s (request %s)", problem.Code, problem.Title, problem.Detail, problem.RequestID)
}

// show writes the output to the streams that it came from.
func show(term *terminal, e api.Execution) error {
	stdout, stderr := []byte(e.Stdout), []byte(e.Stderr)
	if e.StdoutBase64 != nil {
		stdout = e.StdoutBase64
	}
	if e.StderrBase64 != nil {
		stderr = e.StderrBase64
	}
	if e.Result != nil {
		if len(stdout) > 0 && !bytes.HasSuffix(stdout, []byte("\n")) {
			stdout = append(stdout, '\n')
		}
		stdout = append(append(stdout, e.Result...), '\n')
	}
	if _, err := term.out.Write(stdout); err != nil {
		return err
	}
	if _, err := term.err.Write(stderr); err != nil {
		return err
	}
	if e.Truncated {
		fmt.Fprintln(term.err, "sandbox-broker: the output was cut at the limit")
	}
	if e.Error != nil {
		fmt.Fprintf(term.err, "sandbox-broker: %s %s: %s\n", e.Error.Code, e.Error.Title, e.Error.Detail)
	}
	return nil
}

func exitCodeOf(e api.Execution) int {
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
