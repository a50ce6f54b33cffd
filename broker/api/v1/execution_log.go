package v1

import (
	"bytes"
	"context"
	"errors"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// told is what an execution has told so far: it makes events of that, for its log and for
// who listens, or keeps it for one answer.
type told struct {
	log *executions.Execution // nil where nothing is remembered
	to  *rest.EventStream     // nil unless the request is answered with events
	// deaf says that who listens takes nothing any more.
	deaf bool

	// where it runs; zero before it does.
	where instance.Execution
	// cut holds the beginning of a character whose rest has not come.
	cut [2][]byte
	// keeps says that there is one answer, with these.
	keeps          bool
	stdout, stderr bytes.Buffer
	artifacts      []sdk.Artifact
}

var _ instance.Listener = (*told)(nil)

// emit takes an event to the log, and then to who listens.
func (t *told) emit(ctx context.Context, name string, data any) error {
	if t.log == nil && t.to == nil {
		return nil
	}
	encoded, err := rest.Encode(data)
	if err != nil {
		return err
	}
	e := sse.Event{Name: name, Data: encoded}
	if t.log != nil {
		e.ID = t.log.EventID(t.log.Append(name, encoded))
	}
	return t.send(ctx, e)
}

func (t *told) send(ctx context.Context, e sse.Event) error {
	if t.to == nil {
		return nil
	}
	err := t.to.SendEncoded(ctx, e)
	t.deaf = t.deaf || err != nil
	return err
}

// Started implements instance.Listener.
func (t *told) Started(ctx context.Context, where instance.Execution) error {
	t.where = where
	if t.log != nil {
		if err := t.log.Begins(ctx, where.InstanceID, where.Provider); err != nil {
			return err
		}
	}
	return t.emit(ctx, client.EventStarted, client.ExecutionStarted{ExecutionID: where.ID, InstanceID: where.InstanceID, Provider: where.Provider})
}

// Stdout implements instance.Listener.
func (t *told) Stdout(ctx context.Context, p []byte) error {
	if t.keeps {
		t.stdout.Write(p)
	}
	return t.output(ctx, client.EventStdout, &t.cut[0], p)
}

// Stderr implements instance.Listener.
func (t *told) Stderr(ctx context.Context, p []byte) error {
	if t.keeps {
		t.stderr.Write(p)
	}
	return t.output(ctx, client.EventStderr, &t.cut[1], p)
}

// Artifact implements instance.Listener.
func (t *told) Artifact(ctx context.Context, a sdk.Artifact) error {
	if t.keeps {
		t.artifacts = append(t.artifacts, a)
	}
	return t.emit(ctx, client.EventArtifact, artifactOf(a))
}

func (t *told) output(ctx context.Context, name string, cut *[]byte, p []byte) error {
	p = append(*cut, p...)
	whole := lending.WholeRunes(p)
	*cut = bytes.Clone(p[len(whole):])
	return t.part(ctx, name, whole)
}

func (t *told) part(ctx context.Context, name string, p []byte) error {
	switch {
	case len(p) == 0:
		return nil
	case utf8.Valid(p):
		return t.emit(ctx, name, client.OutputPart{Text: string(p)})
	default:
		return t.emit(ctx, name, client.OutputPart{Base64: p})
	}
}

// rest sends what was held back. Where output was cut at the limit, half a character at its
// end is not worth an event.
func (t *told) rest(ctx context.Context, truncated bool) error {
	if truncated {
		return nil
	}
	return errors.Join(t.part(ctx, client.EventStdout, t.cut[0]), t.part(ctx, client.EventStderr, t.cut[1]))
}

// fill puts what was kept into the answer.
func (t *told) fill(into *instance.Execution) {
	if t.keeps {
		into.Stdout, into.Stderr, into.Artifacts = t.stdout.Bytes(), t.stderr.Bytes(), t.artifacts
	}
}

// errInterrupted is what an execution is cancelled with that is interrupted before it has
// begun.
var errInterrupted = errors.New("the execution was interrupted")

// ended takes the end to the log, and to who listens, and says what became of it. What
// never began is forgotten, unless it is detached.
func (t *told) ended(ctx context.Context, execution instance.Execution, err error, requestID string) (instance.Execution, error) {
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		execution, err = t.cancelled(errInterrupted.Error()), nil
	}
	left := t.deaf || errors.Is(err, context.Canceled)
	switch {
	case err == nil:
		return execution, t.finish(ctx, execution)
	case t.log != nil && t.where.ID == "" && !t.log.Info().Detached:
		t.log.Abandon()
		return execution, err
	case left && t.log != nil:
		t.to = nil
		return execution, errors.Join(err, t.finish(ctx, t.cancelled("who had asked for it has left")))
	case !left:
		_ = t.rest(ctx, false) // what cannot be written now, cannot be later
	}
	if t.log != nil {
		t.fail(err, requestID)
	}
	return execution, err
}

// fail notes an execution that has come to an error.
func (t *told) fail(err error, requestID string) {
	outcome := executions.Outcome{State: executions.Failed}
	if fault, ok := errors.AsType[*instance.Fault](err); ok && fault.HasBegun() {
		outcome.State = executions.Unknown
	}
	p := problem(err, requestID)
	data, encodeErr := rest.Encode(p.Body)
	if encodeErr != nil { // a Problem is always JSON
		data = []byte("{}")
	}
	outcome.Last = executions.Event{Name: client.EventError, Data: data}
	t.end(outcome)
}

// cancelled is what became of an execution that was ended from outside.
func (t *told) cancelled(detail string) instance.Execution {
	e := t.where
	if e.ID == "" && t.log != nil {
		e.ID = t.log.Info().ID
	}
	e.Result = sdk.ExecuteResult{Status: sdk.StatusCancelled, ExitCode: 128 + 9, Detail: detail}
	return e
}

// finish tells the last events.
func (t *told) finish(ctx context.Context, execution instance.Execution) error {
	err := t.rest(ctx, execution.Result.Truncated)
	if result := execution.Result.Result; result != nil {
		err = errors.Join(err, t.emit(ctx, client.EventResult, ExecutionResult{Result: result}))
	}
	data, encodeErr := rest.Encode(ExecutionEnd(executionOf(execution)))
	if encodeErr != nil {
		return encodeErr
	}
	last := sse.Event{Name: client.EventDone, Data: data}
	if t.log != nil {
		last.ID = t.log.EventID(t.end(executions.Outcome{
			State: endState(execution.Result.Status), Result: execution.Result.Result,
			Last: executions.Event{Name: client.EventDone, Data: data},
		}))
	}
	if err != nil {
		return err
	}
	return t.send(ctx, last)
}

func (t *told) end(outcome executions.Outcome) int64 { return t.log.End(outcome) }

// endState is how an execution stands that has ended so.
func endState(status sdk.Status) executions.State {
	switch status {
	case sdk.StatusSucceeded:
		return executions.Succeeded
	case sdk.StatusCancelled:
		return executions.Interrupted
	default:
		return executions.Failed
	}
}
