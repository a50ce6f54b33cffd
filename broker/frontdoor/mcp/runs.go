package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

type runCodeArguments struct {
	Language     string   `json:"language" jsonschema:"python, javascript or bash"`
	Code         string   `json:"code" jsonschema:"source text"`
	Session      string   `json:"session,omitempty" jsonschema:"a name of your choice; a fresh sandbox without it"`
	Context      string   `json:"context,omitempty" jsonschema:"default: keep variables in the session (python, javascript)"`
	Timeout      float64  `json:"timeout,omitempty" jsonschema:"seconds"`
	Requirements []string `json:"requirements,omitempty" jsonschema:"packages to install before"`
}

func (t *tools) addRuns() {
	add(t, "run_code", "Run code", "Run Python, JavaScript or bash and return what it prints, its last value in a context, and the files it leaves in /workspace/artifacts.", runs, call.runCode)
}

func (c call) runCode(ctx context.Context, in runCodeArguments) (*mcp.CallToolResult, error) {
	return c.execute(ctx, client.ExecuteRequest{
		Language: in.Language, Code: in.Code, SessionID: in.Session, Context: in.Context, Timeout: in.Timeout, Requirements: in.Requirements,
		Provider: c.Provider, WaitMS: c.Wait.Milliseconds(),
	})
}

// execute runs code. It asks for events, so that the run ends with the caller.
func (c call) execute(ctx context.Context, req client.ExecuteRequest) (*mcp.CallToolResult, error) {
	events, err := c.Client.ExecuteEvents(ctx, req)
	if err != nil {
		return nil, err
	}
	defer events.Close()
	progress := c.follow(ctx)
	defer progress.stop()
	var run run
	for event, err := range events.All() {
		if err == nil {
			err = run.take(event)
		}
		if err != nil {
			return nil, err
		}
		progress.saw(run.lastLine)
	}
	if run.execution.Status == "" {
		return nil, errBrokenOff
	}
	return run.answer(req.SessionID != ""), nil
}

var errBrokenOff = errors.New("the broker's answer broke off: whether the program has ended is not known")

// Figures are shown as such up to these bounds.
const (
	maxFigures     = 4
	maxFigureBytes = 2 << 20
)

// run is what is known of an execution so far.
type run struct {
	stdout, stderr kept
	lastLine       string
	figures        []*mcp.ImageContent
	artifacts      []client.Artifact
	result         json.RawMessage
	execution      client.Execution
}

func (r *run) take(event client.Event) error {
	switch event.Name {
	case client.EventStdout, client.EventStderr:
		var part client.OutputPart
		if err := client.Decode(event, &part); err != nil {
			return err
		}
		to := &r.stdout
		if event.Name == client.EventStderr {
			to = &r.stderr
		}
		to.write(append([]byte(part.Text), part.Base64...))
		r.lastLine = to.lastLine()
	case client.EventArtifact:
		var artifact client.Artifact
		if err := client.Decode(event, &artifact); err != nil {
			return err
		}
		r.keep(artifact)
	case client.EventResult:
		var result client.ExecutionResult
		if err := client.Decode(event, &result); err != nil {
			return err
		}
		r.result = result.Result
	case client.EventDone:
		return client.Decode(event, &r.execution)
	}
	return nil
}

// keep keeps of an artifact what is shown of it.
func (r *run) keep(artifact client.Artifact) {
	figure := artifact.MIMEType == "image/png" || artifact.MIMEType == "image/jpeg"
	if figure && len(artifact.Base64) > 0 && len(artifact.Base64) <= maxFigureBytes && len(r.figures) < maxFigures {
		r.figures = append(r.figures, &mcp.ImageContent{MIMEType: artifact.MIMEType, Data: artifact.Base64})
	}
	artifact.Base64 = nil
	if artifact.Text != nil {
		text := shortened(*artifact.Text, keptTail)
		artifact.Text = &text
	}
	r.artifacts = append(r.artifacts, artifact)
}

// outcome is the first line of an answer.
func outcome(status string, exitCode int, failure *client.ExecutionError) string {
	var line string
	switch sdk.Status(status) {
	case sdk.StatusSucceeded, sdk.StatusFailed:
		line = fmt.Sprintf("exit code %d", exitCode)
	default:
		line = fmt.Sprintf("%s, exit code %d", strings.ReplaceAll(status, "_", " "), exitCode)
	}
	if failure != nil {
		line += fmt.Sprintf(" (%s %s: %s)", failure.Code, failure.Title, shortened(failure.Detail, maxRefusal/2))
	}
	return line + "\n"
}

// answer puts an execution into words.
func (r *run) answer(session bool) *mcp.CallToolResult {
	e := r.execution
	var text strings.Builder
	text.WriteString(outcome(e.Status, e.ExitCode, e.Error))
	if e.Detail != "" {
		text.WriteString(shortened(e.Detail, maxRefusal/2) + "\n")
	}
	for _, finding := range e.Findings[:min(len(e.Findings), 20)] {
		fmt.Fprintf(&text, "line %d: %s\n", finding.Line, shortened(finding.Message, 200))
	}
	writeStream(&text, "", &r.stdout)
	writeStream(&text, "stderr:\n", &r.stderr)
	if r.result != nil {
		text.WriteString("result: " + shortened(string(r.result), keptHead) + "\n")
	}
	r.writeArtifacts(&text)
	writeMissing(&text, e.Truncated, r.stdout.cut() || r.stderr.cut(), "To see all of it, print less, or write it to a file"+ifElse(session, "", " in a session")+" and read that in parts with read_file.")
	result := answered(text.String(), r.structured())
	for _, figure := range r.figures {
		result.Content = append(result.Content, figure)
	}
	return result
}

func ifElse(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

func writeStream(text *strings.Builder, title string, stream *kept) {
	if stream.total == 0 {
		return
	}
	shown := stream.shown(keptTail)
	text.WriteString(title + shown)
	if !strings.HasSuffix(shown, "\n") {
		text.WriteByte('\n')
	}
}

// writeMissing says what became of output that is not there.
func writeMissing(text *strings.Builder, dropped, cut bool, advice string) {
	if dropped {
		text.WriteString("Output above the operator's limit was dropped.\n")
	}
	if cut {
		text.WriteString("The output was cut here to fit. " + advice + "\n")
	}
}

// maxNamed is how many artifacts an answer names.
const maxNamed = 50

// writeArtifacts shows values, and names files.
func (r *run) writeArtifacts(text *strings.Builder) {
	var files []string
	for _, a := range r.artifacts {
		switch {
		case a.Kind == "file":
			name := fmt.Sprintf("%s (%d bytes)", shortened(a.Name, 300), a.Size)
			if a.Refused != "" {
				name += ": " + shortened(a.Refused, 300)
			}
			files = append(files, name)
		case a.Text != nil && a.MIMEType == "text/plain":
			text.WriteString(shortened(*a.Text, keptHead) + "\n")
		}
	}
	if more := len(files) - maxNamed; more > 0 {
		files = append(files[:maxNamed], fmt.Sprintf("%d more", more))
	}
	if len(files) > 0 {
		text.WriteString("files below /workspace: " + strings.Join(files, ", ") + "\n")
	}
}

// structured is the answer of the REST API, cut to fit.
func (r *run) structured() any {
	for room := keptTail; ; room /= 2 {
		e := r.execution
		e.Stdout, e.Stderr, e.Result = r.stdout.shown(room), r.stderr.shown(room), r.result
		e.Truncated = e.Truncated || r.stdout.total > int64(keptHead+room) || r.stderr.total > int64(keptHead+room)
		if len(e.Result) > room {
			e.Result = nil
		}
		e.Artifacts = make([]client.Artifact, 0, len(r.artifacts))
		for _, artifact := range r.artifacts {
			if artifact.Text != nil && len(*artifact.Text) > room {
				artifact.Text = nil
			}
			e.Artifacts = append(e.Artifacts, artifact)
		}
		if encoded, err := json.Marshal(e); err == nil && len(encoded) <= maxStructured {
			return json.RawMessage(encoded)
		}
		if room == 0 {
			return map[string]any{"execution_id": e.ExecutionID, "instance_id": e.InstanceID, "status": e.Status, "exit_code": e.ExitCode, "truncated": true}
		}
	}
}
