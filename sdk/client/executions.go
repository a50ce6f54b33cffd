package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// ExecuteRequest runs code wherever it fits.
type ExecuteRequest struct {
	Code         string            `json:"code" minLength:"1" doc:"The source text." example:"def main(name): return f'Hello {name}!'"`
	Language     string            `json:"language" minLength:"1" maxLength:"64" doc:"python, javascript (also js, node, nodejs), bash (also sh), or what the provider lists." example:"python"`
	Arguments    JSONObject        `json:"arguments,omitempty" doc:"Given, the code must define main, which is called with them. Absent or null is not the same as empty."`
	Timeout      float64           `json:"timeout,omitempty" exclusiveMinimum:"0" doc:"Seconds of wall-clock time that the code may take. The operator sets default and maximum."`
	Env          map[string]string `json:"env,omitempty" maxProperties:"100" doc:"Environment variables for this execution."`
	Requirements []string          `json:"requirements,omitempty" nullable:"false" maxItems:"200" doc:"Packages of the language to install before the code, once in an instance: names, with versions maybe. The installation may take as long as the operator's longest timeout. If it fails the code does not run." example:"[\"numpy\"]"`
	Context      string            `json:"context,omitempty" enum:"default" doc:"default runs the code in an interpreter that keeps its state in the instance: made at first use, one for each language. It is of use with session_id, or with keep."`
	Artifacts    ArtifactRequest   `json:"artifacts,omitempty,omitzero" doc:"Which files come back, beside what comes by itself."`
	SessionID    string            `json:"session_id,omitempty" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9_.-]+$" patternDescription:"letters, digits, _ . -" doc:"Your name for a piece of work. Its instance is used, or made and kept. Without it a fresh instance is made and destroyed afterwards."`
	Template     string            `json:"template,omitempty" minLength:"1" maxLength:"64" doc:"What a new instance is made for, if the language does not say it all."`
	Provider     string            `json:"provider,omitempty" minLength:"1" maxLength:"64" doc:"A provider by its ID, if it shall not be the usual one."`
	ExecutionID  string            `json:"execution_id,omitempty" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9_.-]+$" patternDescription:"letters, digits, _ . -" doc:"Your name for this execution, by which it can be interrupted while it runs. Your executions in progress have different ones. The broker makes one if you do not."`
	Keep         *bool             `json:"keep,omitempty" doc:"Whether to keep the instance afterwards. Default: true with session_id, else false. An instance that is not kept takes no new work from then on, and is destroyed when the executions that other requests began in it have ended."`
	WaitMS       int64             `json:"wait_ms,omitempty" minimum:"0" doc:"Milliseconds that the request may wait for its turn when max_concurrent, max_instances or the provider has no room. Without it it is refused at once. The operator sets the maximum."`
	Detached     bool              `json:"detached,omitempty" doc:"The execution outlives this request, which is answered 202 as soon as it is taken on, or with wait_ms before it waits: see GET /api/v1/executions/{execution}. Its output is remembered for a while, within limits."`
	Webhook      *Webhook          `json:"webhook,omitempty" doc:"Where to post what became of it. It takes detached, and a host that the operator allows."`
}

// InstanceExecuteRequest runs code in a given instance.
type InstanceExecuteRequest struct {
	Code         string            `json:"code" minLength:"1" doc:"The source text."`
	Language     string            `json:"language,omitempty" minLength:"1" maxLength:"64" doc:"As in POST /api/v1/execute. Required unless context_id is given; then it is that of the context." example:"python"`
	ContextID    string            `json:"context_id,omitempty" minLength:"1" maxLength:"255" doc:"A context of the instance to run in, instead of a fresh interpreter." example:"python-1"`
	Context      string            `json:"context,omitempty" enum:"default" doc:"default runs the code in an interpreter that keeps its state in the instance: made at first use, one for each language. Not with context_id."`
	Arguments    JSONObject        `json:"arguments,omitempty" doc:"As in POST /api/v1/execute."`
	Timeout      float64           `json:"timeout,omitempty" exclusiveMinimum:"0" doc:"Seconds."`
	Env          map[string]string `json:"env,omitempty" maxProperties:"100" doc:"Environment variables for this execution."`
	Requirements []string          `json:"requirements,omitempty" nullable:"false" maxItems:"200" doc:"As in POST /api/v1/execute." example:"[\"numpy\"]"`
	Artifacts    ArtifactRequest   `json:"artifacts,omitempty,omitzero" doc:"As in POST /api/v1/execute."`
	ExecutionID  string            `json:"execution_id,omitempty" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9_.-]+$" patternDescription:"letters, digits, _ . -" doc:"As in POST /api/v1/execute."`
	WaitMS       int64             `json:"wait_ms,omitempty" minimum:"0" doc:"As in POST /api/v1/execute, for max_concurrent."`
	Detached     bool              `json:"detached,omitempty" doc:"The execution outlives this request, which is answered 202 as soon as it is taken on, or with wait_ms before it waits: see GET /api/v1/executions/{execution}. Its output is remembered for a while, within limits."`
	Webhook      *Webhook          `json:"webhook,omitempty" doc:"Where to post what became of it. It takes detached, and a host that the operator allows."`
}

// Webhook says where a result goes.
type Webhook struct {
	URL string `json:"url" minLength:"1" maxLength:"2048" doc:"https, or http where the operator allows that for the host." example:"https://agent.example.com/hooks"`
}

// ArtifactRequest says which files come back.
type ArtifactRequest struct {
	Files []string `json:"files,omitempty" maxItems:"20" nullable:"false" doc:"Names below /workspace, or patterns: * and ? stand for a part of a name, ** for any directories. New and changed files below /workspace/artifacts come in any case." example:"[\"out/*.csv\"]"`
}

// Execution is what became of code that was taken on.
type Execution struct {
	_             struct{}        `additionalProperties:"true"`
	ExecutionID   string          `json:"execution_id"`
	InstanceID    string          `json:"instance_id" doc:"{tenant}:{session}:{instance}"`
	Provider      string          `json:"provider"`
	Status        string          `json:"status" enum:"succeeded,failed,timeout,out_of_memory,blocked,cancelled" doc:"Values may be added."`
	Error         *ExecutionError `json:"error,omitempty" doc:"For timeout, out_of_memory and blocked."`
	ExitCode      int             `json:"exit_code" doc:"Of the interpreter; 128 plus the signal when one ended it."`
	Stdout        string          `json:"stdout" doc:"What is not UTF-8 is shown as U+FFFD; stdout_base64 has the exact bytes then."`
	Stderr        string          `json:"stderr"`
	StdoutBase64  []byte          `json:"stdout_base64,omitempty"`
	StderrBase64  []byte          `json:"stderr_base64,omitempty"`
	ExecutionTime float64         `json:"execution_time" doc:"Seconds of wall-clock time."`
	TimedOut      bool            `json:"timed_out"`
	Truncated     bool            `json:"truncated" doc:"Output above the limit was dropped."`
	MemoryUsedMB  float64         `json:"memory_used_mb,omitempty" doc:"Peak of the code's processes in MiB; absent if unknown."`
	Detail        string          `json:"detail,omitempty" doc:"A sentence about its end where the rest does not say it, such as that a context lost its state."`
	Artifacts     []Artifact      `json:"artifacts,omitempty" nullable:"false" doc:"What it made beside its output; absent if nothing."`
	Findings      []Finding       `json:"findings,omitempty" nullable:"false" doc:"What the provider's code policy objects to, the first 50 in the order of the code; absent if nothing."`
	Routing       *Routing        `json:"routing,omitempty" doc:"Why it ran on this provider; absent where the request named the instance."`
	// Result stays the last field: the broker appends it byte for byte.
	Result json.RawMessage `json:"result,omitempty" doc:"The JSON that main returned; absent when nothing was called."`
}

// ExecutionError names the code that goes with a status.
type ExecutionError struct {
	_         struct{} `additionalProperties:"true"`
	Code      string   `json:"code" example:"SB005"`
	Title     string   `json:"title"`
	Detail    string   `json:"detail"`
	Retryable bool     `json:"retryable"`
}

// Artifact is something that an execution made beside its output. It has text,
// base64 or refused.
type Artifact struct {
	_        struct{} `additionalProperties:"true"`
	Kind     string   `json:"kind" enum:"result,display,file" doc:"result: the value of the last expression, in a context; display: what the code showed; file. Values may be added."`
	Name     string   `json:"name,omitempty" doc:"Of a file, relative to /workspace."`
	MIMEType string   `json:"mime_type,omitempty" example:"image/png"`
	Group    int      `json:"group" doc:"Representations of one value have the same number, from 1."`
	Size     int64    `json:"size" doc:"In bytes, of the whole."`
	Text     *string  `json:"text,omitempty" doc:"The content, if its type is one of text and it is UTF-8, or if it is empty."`
	Base64   []byte   `json:"base64,omitempty" doc:"Else the content."`
	Refused  string   `json:"refused,omitempty" doc:"Why the content is not here, in a sentence."`
}

// Finding is a place in the code that a code policy objects to.
type Finding struct {
	_       struct{} `additionalProperties:"true"`
	Line    int      `json:"line,omitempty" doc:"From 1; absent if unknown."`
	Column  int      `json:"column,omitempty" doc:"From 1, in characters; absent if unknown."`
	Rule    string   `json:"rule" doc:"A stable name." example:"python.import.ctypes"`
	Message string   `json:"message" example:"import of ctypes"`
}

// Routing says why a provider serves.
type Routing struct {
	_        struct{}         `additionalProperties:"true"`
	Reason   string           `json:"reason" enum:"active,allowed,cheapest,fastest,exploration,requested,session,fallback" doc:"Values may be added."`
	PlacedBy string           `json:"placed_by,omitempty" doc:"Where reason is session: why its instance was made there, such as fallback."`
	Tried    []RoutingRefusal `json:"tried,omitempty" nullable:"false" doc:"Providers that could not serve, at most 32; absent if there was none. Where reason is session, when its instance was made."`
}

// RoutingRefusal is a provider that could not serve.
type RoutingRefusal struct {
	_        struct{} `additionalProperties:"true"`
	Provider string   `json:"provider"`
	Code     string   `json:"code" doc:"Why. SB009 for one that was not asked because its creations fail." example:"SB009"`
}

// InstallPackagesRequest installs packages in an instance.
type InstallPackagesRequest struct {
	Language     string   `json:"language" minLength:"1" maxLength:"64" doc:"As in POST /api/v1/execute." example:"python"`
	Requirements []string `json:"requirements" nullable:"false" minItems:"1" maxItems:"200" doc:"Names of packages, with versions maybe, as the installer of the language takes them." example:"[\"numpy\", \"requests>=2\"]"`
	Timeout      float64  `json:"timeout,omitempty" exclusiveMinimum:"0" doc:"Seconds that the installation may take. The operator sets the maximum, which is also the default."`
}

// ExecutionStarted says where code is about to run.
type ExecutionStarted struct {
	_           struct{} `additionalProperties:"true"`
	ExecutionID string   `json:"execution_id" doc:"By which it can be interrupted."`
	InstanceID  string   `json:"instance_id"`
	Provider    string   `json:"provider"`
}

// OutputPart is a piece of output: one of its fields is there.
type OutputPart struct {
	_      struct{} `additionalProperties:"true"`
	Text   string   `json:"text,omitempty" doc:"The piece, if it is UTF-8. A character is never cut."`
	Base64 []byte   `json:"base64,omitempty" doc:"Else its exact bytes."`
}

// ExecutionResult is what main returned.
type ExecutionResult struct {
	_      struct{}        `additionalProperties:"true"`
	Result json.RawMessage `json:"result"`
}

// ExecutionEnd is an Execution without what was streamed before.
type ExecutionEnd Execution

// JSONObject is any JSON object, kept byte for byte.
type JSONObject json.RawMessage

// UnmarshalJSON keeps the bytes; null counts as absent.
func (o *JSONObject) UnmarshalJSON(b []byte) error {
	*o = nil
	if string(b) != "null" {
		*o = append(*o, b...)
	}
	return nil
}

// MarshalJSON writes the bytes.
func (o JSONObject) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// Execute runs code wherever it fits, and returns what became of it.
func (c *Client) Execute(ctx context.Context, req ExecuteRequest) (Execution, error) {
	return ask[Execution](ctx, c, Request{Method: post, Path: "/api/v1/execute", Body: req})
}

// ExecuteEvents does the same and tells what happens meanwhile.
func (c *Client) ExecuteEvents(ctx context.Context, req ExecuteRequest) (*Events, error) {
	return c.stream(ctx, Request{Method: post, Path: "/api/v1/execute", Body: req})
}

// ExecuteIn runs code in an instance.
func (c *Client) ExecuteIn(ctx context.Context, id string, req InstanceExecuteRequest) (Execution, error) {
	return ask[Execution](ctx, c, Request{Method: post, Path: below(id, "execute"), Body: req})
}

// ExecuteEventsIn does the same and tells what happens meanwhile.
func (c *Client) ExecuteEventsIn(ctx context.Context, id string, req InstanceExecuteRequest) (*Events, error) {
	return c.stream(ctx, Request{Method: post, Path: below(id, "execute"), Body: req})
}

// Interrupt does to an execution what Ctrl-C does in a terminal.
func (c *Client) Interrupt(ctx context.Context, id, execution string) error {
	return c.tell(ctx, http.MethodDelete, below(id, "executions", execution), nil)
}

// InstallPackages installs packages in an instance.
func (c *Client) InstallPackages(ctx context.Context, id string, req InstallPackagesRequest) (Execution, error) {
	return ask[Execution](ctx, c, Request{Method: post, Path: below(id, "packages"), Body: req})
}
