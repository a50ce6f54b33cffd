package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// registerExecution binds an operation that runs code: it answers with one
// Execution, or with events if the client prefers those.
func registerExecution[In any](s *Server, op operation, run func(ctx context.Context, c call[In], listener instance.Listener) (instance.Execution, error)) {
	in := reflect.TypeFor[In]()
	body := bodyDecoder(s, in)
	op.events = executionEvents()
	s.document.add(op, in, reflect.TypeFor[Execution](), body)
	bind(s, op, func(c *fiber.Ctx, request call[In]) error {
		if err := readBody(c, body, &request.body); err != nil {
			return err
		}
		if wantsEvents(c) {
			c.Request().ResetBody() // else it is kept as long as the stream
			id := exchangeOf(c).requestID
			return s.handOver(c, func(w http.ResponseWriter, r *http.Request) error {
				return s.streamExecution(w, r, id, func(ctx context.Context, listener instance.Listener) (instance.Execution, error) {
					return run(ctx, request, listener)
				})
			})
		}
		ctx, cancel := s.contextOf(c)
		defer cancel()
		execution, err := run(ctx, request, nil)
		if err != nil {
			return err
		}
		return send(c, http.StatusOK, executionOf(execution))
	})
}

func (s *Server) execute(ctx context.Context, c call[ExecuteRequest], listener instance.Listener) (instance.Execution, error) {
	return s.instances.Run(ctx, c.tenant, instance.RunRequest{
		ExecuteRequest: instance.ExecuteRequest{
			ID:           c.body.ExecutionID,
			Code:         c.body.Code,
			Language:     c.body.Language,
			Arguments:    json.RawMessage(c.body.Arguments),
			Timeout:      duration(c.body.Timeout),
			Env:          c.body.Env,
			Requirements: c.body.Requirements,
			Context:      c.body.Context,
			Files:        c.body.Artifacts.Files,
			Wait:         waitOf(c.body.WaitMS),
			Listener:     listener,
		},
		Session:  c.body.SessionID,
		Template: c.body.Template,
		Provider: c.body.Provider,
		Keep:     c.body.Keep,
	})
}

func (s *Server) executeInInstance(ctx context.Context, c call[InstanceExecuteRequest], listener instance.Listener) (instance.Execution, error) {
	return s.instances.Execute(ctx, c.tenant, c.id, instance.ExecuteRequest{
		ID:           c.body.ExecutionID,
		Code:         c.body.Code,
		Language:     c.body.Language,
		Arguments:    json.RawMessage(c.body.Arguments),
		Timeout:      duration(c.body.Timeout),
		Env:          c.body.Env,
		Requirements: c.body.Requirements,
		ContextID:    c.body.ContextID,
		Context:      c.body.Context,
		Files:        c.body.Artifacts.Files,
		Wait:         waitOf(c.body.WaitMS),
		Listener:     listener,
	})
}

// duration turns seconds into a duration, 0 only for 0. What is too long stays
// the longest there is, for the service to refuse.
func duration(seconds float64) time.Duration {
	if seconds >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	d := time.Duration(seconds * float64(time.Second))
	if seconds > 0 {
		return max(d, 1)
	}
	return d
}

func executionOf(e instance.Execution) Execution {
	r := e.Result
	answer := Execution{
		ExecutionID:   e.ID,
		InstanceID:    e.InstanceID,
		Provider:      e.Provider,
		Routing:       routingOf(e.Routing),
		Status:        string(r.Status),
		ExitCode:      r.ExitCode,
		Result:        r.Result,
		ExecutionTime: math.Round(r.Duration.Seconds()*1e6) / 1e6,
		TimedOut:      r.Status == sdk.StatusTimeout,
		Truncated:     r.Truncated,
		MemoryUsedMB:  math.Round(float64(r.PeakMemoryBytes)/(1<<20)*1e3) / 1e3,
	}
	answer.Stdout, answer.StdoutBase64 = text(e.Stdout, r.Truncated)
	answer.Stderr, answer.StderrBase64 = text(e.Stderr, r.Truncated)
	for _, f := range r.Findings {
		answer.Findings = append(answer.Findings, Finding{Line: f.Line, Column: f.Column, Rule: f.Rule, Message: f.Message})
	}
	if code := r.Status.Code(); code != "" {
		info := code.Info()
		answer.Error = &ExecutionError{Code: string(code), Title: info.Title, Detail: r.Detail, Retryable: info.Retryable}
		if answer.Error.Detail == "" {
			answer.Error.Detail = info.Advice
		}
	} else {
		answer.Detail = r.Detail
	}
	for _, artifact := range e.Artifacts {
		answer.Artifacts = append(answer.Artifacts, artifactOf(artifact))
	}
	return answer
}

// text shows output as a string; exact holds the bytes if they are not UTF-8.
// Where output was cut, half a character at its end is dropped and not held
// against it.
func text(output []byte, cut bool) (shown string, exact []byte) {
	if cut {
		output = wholeRunes(output)
	}
	if utf8.Valid(output) {
		return string(output), nil
	}
	return strings.ToValidUTF8(string(output), "\uFFFD"), output
}

// wholeRunes drops the beginning of a character that is cut off at the end.
func wholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		tail := b[len(b)-i:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// encode appends the result as it came: encoding/json would take the spaces out
// of it.
func (e Execution) encode() ([]byte, error) {
	result := e.Result
	e.Result = nil
	type plain Execution // without this method
	body, err := encode(plain(e))
	if err != nil || result == nil {
		return body, err
	}
	return appendResult(append(body[:len(body)-1], ','), result)
}

// appendResult appends a result as the last field of an object.
func appendResult(body []byte, result json.RawMessage) ([]byte, error) {
	if !json.Valid(result) {
		return nil, errors.New("the result is not JSON")
	}
	body = append(body, `"result":`...)
	body = append(body, bytes.ToValidUTF8(result, []byte("\uFFFD"))...)
	return append(body, '}'), nil
}
