package api

import (
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// The types below are the API. Their tags make the OpenAPI document, and
// decode.go enforces on requests what they say.

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
}

// CreateInstanceRequest asks for an instance.
type CreateInstanceRequest struct {
	SessionID    string            `json:"session_id,omitempty" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9_.-]+$" patternDescription:"letters, digits, _ . -" doc:"Your name for a piece of work. A session has one instance per provider; asking again returns it."`
	Language     string            `json:"language,omitempty" minLength:"1" maxLength:"64" doc:"What most of the code will be written in."`
	Template     string            `json:"template,omitempty" minLength:"1" maxLength:"64" doc:"What the instance is made for; beats language."`
	Provider     string            `json:"provider,omitempty" minLength:"1" maxLength:"64" doc:"A provider by its ID, if it shall not be the usual one."`
	Requirements []string          `json:"requirements,omitempty" nullable:"false" maxItems:"200" doc:"Packages to install before it is answered, of the language, or of the template." example:"[\"numpy\"]"`
	Env          map[string]string `json:"env,omitempty" maxProperties:"100" doc:"Environment variables for every execution in it."`
	Labels       map[string]string `json:"labels,omitempty" maxProperties:"50" doc:"Your own notes, to find the instance by: GET /api/v1/instances?label=name=value."`
	TTL          float64           `json:"ttl,omitempty" exclusiveMinimum:"0" doc:"Seconds that it lives from now on, and again from the end of each execution. The operator sets the default and the maximum lifetime, which neither use nor renewal exceeds."`
	Idle         float64           `json:"idle,omitempty" exclusiveMinimum:"0" doc:"Seconds without use after which it is destroyed, even if its ttl would allow more. The operator sets the maximum, which is also the default."`
	WaitMS       int64             `json:"wait_ms,omitempty" minimum:"0" doc:"Milliseconds that the request may wait for its turn when max_concurrent, max_instances or the provider has no room. Without it it is refused at once. The operator sets the maximum."`
	Languages    []string          `json:"languages,omitempty" nullable:"false" maxItems:"20" doc:"Languages that its provider must run." example:"[\"python\",\"bash\"]"`
	Capabilities []string          `json:"capabilities,omitempty" nullable:"false" maxItems:"20" doc:"What its provider must be capable of, as GET /api/v1/providers lists it." example:"[\"files\",\"pause\"]"`
}

// RenewInstanceRequest asks for more time, or less.
type RenewInstanceRequest struct {
	TTL float64 `json:"ttl,omitempty" exclusiveMinimum:"0" doc:"Seconds from now until it expires; the instance's own ttl unless given."`
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
	// Result stays the last field: encode appends it byte for byte.
	Result json.RawMessage `json:"result,omitempty" doc:"The JSON that main returned; absent when nothing was called."`
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

// Finding is a place in the code that a code policy objects to.
type Finding struct {
	_       struct{} `additionalProperties:"true"`
	Line    int      `json:"line,omitempty" doc:"From 1; absent if unknown."`
	Column  int      `json:"column,omitempty" doc:"From 1, in characters; absent if unknown."`
	Rule    string   `json:"rule" doc:"A stable name." example:"python.import.ctypes"`
	Message string   `json:"message" example:"import of ctypes"`
}

// ExecutionError names the code that goes with a status.
type ExecutionError struct {
	_         struct{} `additionalProperties:"true"`
	Code      string   `json:"code" example:"SB005"`
	Title     string   `json:"title"`
	Detail    string   `json:"detail"`
	Retryable bool     `json:"retryable"`
}

// Instance is one live sandbox.
type Instance struct {
	_          struct{}          `additionalProperties:"true"`
	ID         string            `json:"id" doc:"{tenant}:{session}:{instance}; in a path the colons may be plain or %3A." example:"acme:report-7:k3v9x2m4q8w1z5y7b6n0"`
	SessionID  string            `json:"session_id"`
	Provider   string            `json:"provider"`
	Template   string            `json:"template"`
	Metadata   map[string]string `json:"metadata,omitempty" doc:"Facts from the provider, such as a region."`
	Labels     map[string]string `json:"labels,omitempty" doc:"As its creator gave them."`
	State      string            `json:"state" enum:"running,paused" doc:"Values may be added."`
	CreatedAt  time.Time         `json:"created_at"`
	LastUsedAt time.Time         `json:"last_used_at"`
	ExpiresAt  time.Time         `json:"expires_at" doc:"When it is destroyed unless it is used or renewed before. Executions that run then may finish."`
	TTL        float64           `json:"ttl" doc:"Seconds until expires_at that the end of an execution leaves at least, within the maximum lifetime."`
	Idle       float64           `json:"idle" doc:"Seconds after last_used_at until it is destroyed, if that comes before expires_at."`
	Executions int               `json:"executions" doc:"Executions in progress."`
	Routing    *Routing          `json:"routing,omitempty" doc:"Why it is on this provider."`
}

// InstanceList holds live instances of the tenant, in the order of their IDs.
type InstanceList struct {
	_         struct{}   `additionalProperties:"true"`
	Instances []Instance `json:"instances" nullable:"false"`
	Next      string     `json:"next,omitempty" doc:"If there are more: what to give as after for the next page."`
}

// Provider is something that can run code.
type Provider struct {
	_            struct{}          `additionalProperties:"true"`
	ID           string            `json:"id" doc:"Its label in the configuration."`
	Plugin       string            `json:"plugin"`
	Version      string            `json:"version"`
	Summary      string            `json:"summary"`
	Active       bool              `json:"active" doc:"Used when a request names none."`
	Languages    []string          `json:"languages" nullable:"false"`
	Templates    []Template        `json:"templates" nullable:"false"`
	Capabilities []string          `json:"capabilities" nullable:"false"`
	State        string            `json:"state" doc:"ready, or a word that says why not." example:"ready"`
	Reason       string            `json:"reason,omitempty" doc:"Why it is not ready."`
	Details      map[string]string `json:"details,omitempty" doc:"Facts for people."`
}

// Template is what an instance can be made for.
type Template struct {
	_           struct{} `additionalProperties:"true"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Languages   []string `json:"languages" nullable:"false"`
}

// ProviderList holds the providers that the tenant may use.
type ProviderList struct {
	_         struct{}   `additionalProperties:"true"`
	Providers []Provider `json:"providers" nullable:"false"`
}

// Health says that the process is alive or ready.
type Health struct {
	_        struct{}   `additionalProperties:"true"`
	Status   string     `json:"status" enum:"ok,ready"`
	NotReady []NotReady `json:"not_ready,omitempty" nullable:"false" doc:"Of the active provider and its fallback, those that take no work at the moment."`
}

// NotReady is a provider that takes no work.
type NotReady struct {
	_        struct{} `additionalProperties:"true"`
	Provider string   `json:"provider"`
	State    string   `json:"state" example:"restarting"`
	Reason   string   `json:"reason,omitempty"`
}

// JSONObject is any JSON object, kept byte for byte.
type JSONObject json.RawMessage

// Schema implements huma.SchemaProvider.
func (JSONObject) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

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
