package v1

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

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// executionRoutes run code, and install packages for it.
type executionRoutes struct {
	instances Instances
	keeper    *executions.Keeper // nil where nothing is remembered
	webhooks  Webhooks           // nil for none
}

func (h executionRoutes) register(a *rest.API) {
	anywhere := executor[client.ExecuteRequest]{h, h.execute, func(r client.ExecuteRequest) wanted { return wanted{r.ExecutionID, r.Detached, r.Webhook} }}
	within := executor[client.InstanceExecuteRequest]{h, h.executeInInstance, func(r client.InstanceExecuteRequest) wanted { return wanted{r.ExecutionID, r.Detached, r.Webhook} }}
	rest.RegisterEither(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/execute", ID: "execute", Tag: tagExecute,
		Summary: "Run code",
		Details: "Takes a fresh instance, or the session's if session_id is given, runs the code and destroys or keeps the instance. " +
			"What becomes of the code is data: an execution that was taken on answers 200, with its status. " +
			"A client that goes away cancels it.\n\n" +
			"With Accept: text/event-stream the same comes as events while it happens. What fails before the code starts is answered as usual.\n\n" +
			"With detached it is answered 202 at once, or with events all the same, and the execution outlives its caller: look at it, follow it and end it by its ID, under /api/v1/executions.",
		Success:  []int{http.StatusOK, http.StatusAccepted},
		Accepted: reflect.TypeFor[client.ExecutionInfo](),
		Codes:    append(providerCodes(), sdk.CodeConflict, sdk.CodeNotAllowed),
		Events:   executionEvents(),
	}, nil, anywhere.answer, anywhere.stream)
	rest.RegisterEither(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/instances/{id}/execute", ID: "executeInInstance", Tag: tagExecute,
		Summary:  "Run code in an instance",
		Details:  "As POST /api/v1/execute, in an instance that exists.",
		Success:  []int{http.StatusOK, http.StatusAccepted},
		Accepted: reflect.TypeFor[client.ExecutionInfo](),
		Codes:    append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
		Events:   executionEvents(),
	}, nil, within.answer, within.stream)
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: "/api/v1/instances/{id}/executions/{execution}", ID: "interruptExecution", Tag: tagExecute,
		Summary: "Interrupt an execution",
		Details: "Does what Ctrl-C does in a terminal: Python raises KeyboardInterrupt, other programs get SIGINT. Code that still runs a second later is killed with all that it started. " +
			"It is answered when that has begun; the execution's own request is answered with the status cancelled and the output so far. Doing it again has no effect.",
		Success: []int{http.StatusAccepted},
		Codes:   []sdk.Code{sdk.CodeNotFound},
	}, h.interruptExecution)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/instances/{id}/packages", ID: "installPackages", Tag: tagInstances,
		Summary: "Install packages",
		Details: "They stay for the life of the instance. What becomes of the installation is data, as with code: it answers 200 with a status, " +
			"and if that is not succeeded, stderr begins with \"Failed to install requirements: \". " +
			"Where the operator has not allowed it, it is refused with SB015.",
		Success: []int{http.StatusOK}, Codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, h.installPackages)
}

func (h executionRoutes) execute(ctx context.Context, c rest.Call[client.ExecuteRequest], from hearing) (instance.Execution, error) {
	return h.instances.Run(ctx, c.Tenant, instance.RunRequest{
		ExecuteRequest: instance.ExecuteRequest{
			ID:           from.id,
			Code:         c.Body.Code,
			Language:     c.Body.Language,
			Arguments:    json.RawMessage(c.Body.Arguments),
			Timeout:      duration(c.Body.Timeout),
			Env:          c.Body.Env,
			Requirements: c.Body.Requirements,
			Context:      c.Body.Context,
			Files:        c.Body.Artifacts.Files,
			Wait:         waitOf(c.Body.WaitMS),
			Listener:     from.listener, Taken: from.taken,
		},
		Session:   c.Body.SessionID,
		Template:  c.Body.Template,
		Provider:  c.Body.Provider,
		Keep:      c.Body.Keep,
		FrontDoor: c.FrontDoor(),
	})
}

func (h executionRoutes) executeInInstance(ctx context.Context, c rest.Call[client.InstanceExecuteRequest], from hearing) (instance.Execution, error) {
	return h.instances.Execute(ctx, c.Tenant, c.Path["id"], instance.ExecuteRequest{
		ID:           from.id,
		Code:         c.Body.Code,
		Language:     c.Body.Language,
		Arguments:    json.RawMessage(c.Body.Arguments),
		Timeout:      duration(c.Body.Timeout),
		Env:          c.Body.Env,
		Requirements: c.Body.Requirements,
		ContextID:    c.Body.ContextID,
		Context:      c.Body.Context,
		Files:        c.Body.Artifacts.Files,
		Wait:         waitOf(c.Body.WaitMS),
		Listener:     from.listener, Taken: from.taken,
	})
}

func (h executionRoutes) interruptExecution(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	return http.StatusAccepted, rest.None{}, h.instances.Interrupt(ctx, c.Tenant, c.Path["id"], c.Path["execution"])
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
		answer.Findings = append(answer.Findings, client.Finding{Line: f.Line, Column: f.Column, Rule: f.Rule, Message: f.Message})
	}
	if code := r.Status.Code(); code != "" {
		info := code.Info()
		answer.Error = &client.ExecutionError{Code: string(code), Title: info.Title, Detail: r.Detail, Retryable: info.Retryable}
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
		output = lending.WholeRunes(output)
	}
	if utf8.Valid(output) {
		return string(output), nil
	}
	return strings.ToValidUTF8(string(output), "\uFFFD"), output
}

// waitOf turns wait_ms of a request into a duration. What is too long stays the
// longest there is, for the service to refuse.
func waitOf(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// Execution is the client's, as the broker writes it.
type Execution client.Execution

// EncodeJSON appends the result as it came: encoding/json would take the spaces out
// of it.
func (e Execution) EncodeJSON() ([]byte, error) {
	result := e.Result
	e.Result = nil
	body, err := rest.EncodeJSON(client.Execution(e))
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

func artifactOf(a sdk.Artifact) client.Artifact {
	answer := client.Artifact{Kind: string(a.Kind), Name: a.Name, MIMEType: a.MIMEType, Group: a.Group, Size: a.Size, Refused: a.Refused}
	switch {
	case a.Refused != "":
	case len(a.Data) == 0, isText(a.MIMEType) && utf8.Valid(a.Data):
		content := string(a.Data)
		answer.Text = &content
	default:
		answer.Base64 = a.Data
	}
	return answer
}

// isText tells the types whose content people read.
func isText(mimeType string) bool {
	mimeType, _, _ = strings.Cut(mimeType, ";")
	switch mimeType {
	case "application/json", "application/jsonl", "application/javascript", "application/xml", "application/yaml":
		return true
	}
	return strings.HasPrefix(mimeType, "text/") || strings.HasSuffix(mimeType, "+json") || strings.HasSuffix(mimeType, "+xml")
}

func (h executionRoutes) installPackages(ctx context.Context, c rest.Call[client.InstallPackagesRequest]) (int, Execution, error) {
	execution, err := h.instances.Install(ctx, c.Tenant, c.Path["id"], instance.InstallRequest{
		Language: c.Body.Language, Requirements: c.Body.Requirements, Timeout: duration(c.Body.Timeout),
	})
	return http.StatusOK, executionOf(execution), err
}
