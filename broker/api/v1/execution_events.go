package v1

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
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

// streamExecution answers with the events of an execution.
func streamExecution[In any](run runner[In]) rest.EventHandler[In] {
	return func(request context.Context, c rest.Call[In], to *rest.EventStream) error {
		ctx, cancel := context.WithTimeout(request, c.Timeout)
		defer cancel()
		listener := &eventListener{stream: to}
		execution, err := run(ctx, c, listener)
		if err != nil {
			if request.Err() == nil {
				_ = listener.end(request, false) // what cannot be written now, cannot be later
			}
			return err
		}
		if err := listener.end(request, execution.Result.Truncated); err != nil {
			return err
		}
		if result := execution.Result.Result; result != nil {
			if err := to.Send(request, client.EventResult, ExecutionResult{Result: result}); err != nil {
				return err
			}
		}
		return to.Send(request, client.EventDone, ExecutionEnd(executionOf(execution)))
	}
}

// eventListener makes events of what an execution does.
type eventListener struct {
	stream *rest.EventStream
	// cut holds the beginning of a character whose rest has not come.
	cut [2][]byte
}

var _ instance.Listener = (*eventListener)(nil)

func (l *eventListener) Started(ctx context.Context, where instance.Execution) error {
	return l.stream.Send(ctx, client.EventStarted, client.ExecutionStarted{ExecutionID: where.ID, InstanceID: where.InstanceID, Provider: where.Provider})
}

func (l *eventListener) Stdout(ctx context.Context, p []byte) error {
	return l.output(ctx, client.EventStdout, &l.cut[0], p)
}

func (l *eventListener) Stderr(ctx context.Context, p []byte) error {
	return l.output(ctx, client.EventStderr, &l.cut[1], p)
}

func (l *eventListener) Artifact(ctx context.Context, a sdk.Artifact) error {
	return l.stream.Send(ctx, client.EventArtifact, artifactOf(a))
}

func (l *eventListener) output(ctx context.Context, name string, cut *[]byte, p []byte) error {
	p = append(*cut, p...)
	whole := lending.WholeRunes(p)
	*cut = bytes.Clone(p[len(whole):])
	return l.part(ctx, name, whole)
}

// end sends what was held back. Where output was cut at the limit, half a
// character at its end is not worth an event.
func (l *eventListener) end(ctx context.Context, truncated bool) error {
	if truncated {
		return nil
	}
	return errors.Join(l.part(ctx, client.EventStdout, l.cut[0]), l.part(ctx, client.EventStderr, l.cut[1]))
}

func (l *eventListener) part(ctx context.Context, name string, p []byte) error {
	switch {
	case len(p) == 0:
		return nil
	case utf8.Valid(p):
		return l.stream.Send(ctx, name, client.OutputPart{Text: string(p)})
	default:
		return l.stream.Send(ctx, name, client.OutputPart{Base64: p})
	}
}
