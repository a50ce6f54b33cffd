package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The events of a streamed execution. It ends with exactly one of EventDone and
// EventError.
const (
	EventStarted  = "started"
	EventStdout   = "stdout"
	EventStderr   = "stderr"
	EventArtifact = "artifact"
	EventResult   = "result"
	EventDone     = "done"
	EventError    = "error"
)

// event describes one of an operation's events in the document.
type event struct {
	name string
	doc  string
	data reflect.Type
}

func executionEvents() []event {
	return []event{
		{EventStarted, "The code is about to run. It comes first, and once more with another instance_id if the session's instance proves to be gone; nothing has run then.", reflect.TypeFor[ExecutionStarted]()},
		{EventStdout, "Output, in order.", reflect.TypeFor[OutputPart]()},
		{EventStderr, "Output, in order.", reflect.TypeFor[OutputPart]()},
		{EventArtifact, "Something that the code made beside its output.", reflect.TypeFor[Artifact]()},
		{EventResult, "The JSON that main returned; absent when nothing was called.", reflect.TypeFor[ExecutionResult]()},
		{EventDone, "The last event: what became of the code, without what other events told.", reflect.TypeFor[ExecutionEnd]()},
		{EventError, "Or this is the last event: what failed after the start, as the problem that it would have been before.", reflect.TypeFor[Problem]()},
	}
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

// encode keeps the result as it came.
func (r ExecutionResult) encode() ([]byte, error) { return appendResult([]byte("{"), r.Result) }

// ExecutionEnd is an Execution without what was streamed before.
type ExecutionEnd Execution

// streamed are the fields of Execution that ExecutionEnd lacks.
var streamed = []string{"stdout", "stderr", "stdout_base64", "stderr_base64", "artifacts", "result"}

// Schema implements huma.SchemaProvider.
func (ExecutionEnd) Schema(r huma.Registry) *huma.Schema {
	schema := huma.SchemaFromType(r, reflect.TypeFor[Execution]())
	for _, name := range streamed {
		delete(schema.Properties, name)
	}
	var required []string
	for _, name := range schema.Required {
		if schema.Properties[name] != nil {
			required = append(required, name)
		}
	}
	schema.Required = required
	return schema
}

func (e ExecutionEnd) encode() ([]byte, error) {
	type plain ExecutionEnd // without this method
	return encode(struct {
		plain
		// These hide those of the same name.
		Stdout       *string `json:"stdout,omitempty"`
		Stderr       *string `json:"stderr,omitempty"`
		StdoutBase64 *string `json:"stdout_base64,omitempty"`
		StderrBase64 *string `json:"stderr_base64,omitempty"`
		Artifacts    *string `json:"artifacts,omitempty"`
		Result       *string `json:"result,omitempty"`
	}{plain: plain(e)})
}

// errTold is a failure that the client has heard of in its stream.
type errTold struct{ error }

func (e errTold) Unwrap() error { return e.error }

// streamExecution answers with the events of an execution.
func (s *Server) streamExecution(w http.ResponseWriter, r *http.Request, requestID string, run func(context.Context, instance.Listener) (instance.Execution, error)) error {
	ctx, cancel := context.WithTimeout(r.Context(), s.requestTimeout())
	defer cancel()
	listener := &eventListener{stream: newEventStream(w)}
	defer listener.stream.close()
	execution, err := run(ctx, listener)
	if err != nil && (!listener.stream.begun() || r.Context().Err() != nil) {
		return err
	}
	if err != nil {
		p, _ := problemOf(err, requestID)
		return errors.Join(listener.end(r.Context(), false), listener.stream.send(r.Context(), EventError, p), errTold{err})
	}
	if err := listener.end(r.Context(), execution.Result.Truncated); err != nil {
		return err
	}
	if result := execution.Result.Result; result != nil {
		if err := listener.stream.send(r.Context(), EventResult, ExecutionResult{Result: result}); err != nil {
			return err
		}
	}
	return listener.stream.send(r.Context(), EventDone, ExecutionEnd(executionOf(execution)))
}

// eventListener makes events of what an execution does.
type eventListener struct {
	stream *eventStream
	// cut holds the beginning of a character whose rest has not come.
	cut [2][]byte
}

var _ instance.Listener = (*eventListener)(nil)

func (l *eventListener) Started(ctx context.Context, where instance.Execution) error {
	return l.stream.send(ctx, EventStarted, ExecutionStarted{ExecutionID: where.ID, InstanceID: where.InstanceID, Provider: where.Provider})
}

func (l *eventListener) Stdout(ctx context.Context, p []byte) error {
	return l.output(ctx, EventStdout, &l.cut[0], p)
}

func (l *eventListener) Stderr(ctx context.Context, p []byte) error {
	return l.output(ctx, EventStderr, &l.cut[1], p)
}

func (l *eventListener) Artifact(ctx context.Context, a sdk.Artifact) error {
	return l.stream.send(ctx, EventArtifact, artifactOf(a))
}

func (l *eventListener) output(ctx context.Context, name string, cut *[]byte, p []byte) error {
	p = append(*cut, p...)
	whole := wholeRunes(p)
	*cut = bytes.Clone(p[len(whole):])
	return l.part(ctx, name, whole)
}

// end sends what was held back. Where output was cut at the limit, half a
// character at its end is not worth an event.
func (l *eventListener) end(ctx context.Context, truncated bool) error {
	if truncated {
		return nil
	}
	return errors.Join(l.part(ctx, EventStdout, l.cut[0]), l.part(ctx, EventStderr, l.cut[1]))
}

func (l *eventListener) part(ctx context.Context, name string, p []byte) error {
	switch {
	case len(p) == 0:
		return nil
	case utf8.Valid(p):
		return l.stream.send(ctx, name, OutputPart{Text: string(p)})
	default:
		return l.stream.send(ctx, name, OutputPart{Base64: p})
	}
}

func (s *Server) interruptExecution(_ context.Context, c call[none]) (int, none, error) {
	return http.StatusAccepted, none{}, s.instances.Interrupt(c.tenant, c.id, c.path["execution"])
}

// told returns the failure that a stream has told of, if that is what err is.
func told(err error) (sdk.Code, bool) {
	if t, ok := errors.AsType[errTold](err); ok {
		return sdk.CodeOf(t.error), true
	}
	return "", false
}
