package v1

import (
	"reflect"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func executionEvents() []rest.Event {
	return []rest.Event{
		rest.EventOf[client.ExecutionStarted](client.EventStarted, "The code is about to run. It comes first, and once more with another instance_id if the session's instance proves to be gone; nothing has run then."),
		rest.EventOf[client.OutputPart](client.EventStdout, "Output, in order."),
		rest.EventOf[client.OutputPart](client.EventStderr, "Output, in order."),
		rest.EventOf[client.Artifact](client.EventArtifact, "Something that the code made beside its output."),
		rest.EventOf[ExecutionResult](client.EventResult, "The JSON that main returned; absent when nothing was called."),
		rest.EventOf[ExecutionEnd](client.EventDone, "The last event: what became of the code, without what other events told."),
		rest.EventOf[client.Problem](rest.EventError, "Or this is the last event: what failed after the start, as the problem that it would have been before."),
	}
}

// ExecutionResult is the client's, as the broker writes it.
type ExecutionResult client.ExecutionResult

// EncodeJSON keeps the result as it came.
func (r ExecutionResult) EncodeJSON() ([]byte, error) { return appendResult([]byte("{"), r.Result) }

// ExecutionEnd is an Execution without what was streamed before.
type ExecutionEnd client.Execution

// streamed are the fields of Execution that ExecutionEnd lacks.
var streamed = []string{"stdout", "stderr", "stdout_base64", "stderr_base64", "artifacts", "result"}

// Schema implements rest.SchemaProvider.
func (ExecutionEnd) Schema(r rest.Registry) *rest.Schema {
	schema := rest.SchemaOf(r, reflect.TypeFor[Execution]())
	for _, name := range streamed {
		delete(schema.Properties, name)
	}
	schema.Required = slices.DeleteFunc(schema.Required, func(name string) bool { return schema.Properties[name] == nil })
	return schema
}

// EncodeJSON implements rest.Encoder.
func (e ExecutionEnd) EncodeJSON() ([]byte, error) {
	return rest.EncodeJSON(struct {
		client.Execution
		// These hide those of the same name.
		Stdout       *string `json:"stdout,omitempty"`
		Stderr       *string `json:"stderr,omitempty"`
		StdoutBase64 *string `json:"stdout_base64,omitempty"`
		StderrBase64 *string `json:"stderr_base64,omitempty"`
		Artifacts    *string `json:"artifacts,omitempty"`
		Result       *string `json:"result,omitempty"`
	}{Execution: client.Execution(e)})
}
