package v1

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// rememberedRoutes are about executions by their IDs, wherever they run.
type rememberedRoutes struct {
	instances Instances
	keeper    *executions.Keeper // nil where nothing is remembered
}

func (h rememberedRoutes) register(a *rest.API) {
	const all, one = "/api/v1/executions", "/api/v1/executions/{execution}"
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: all, ID: "listExecutions", Tag: tagExecute,
		Summary: "List executions",
		Details: "Those that run, and those that have ended not long ago, the newest first.",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, h.list)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: one, ID: "getExecution", Tag: tagExecute,
		Summary: "Look at an execution",
		Details: "Any that was begun with this API, by its ID, as long as it runs and for a while after its end. Of one that was not detached nothing is known after a restart of the broker.",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeNotFound, sdk.CodeUnavailable},
	}, h.get)
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: one, ID: "endExecution", Tag: tagExecute,
		Summary: "Interrupt an execution, or forget it",
		Details: "Interrupts it as DELETE /api/v1/instances/{id}/executions/{execution} does, also before it has begun. One that has ended is left as it is, or with forget is remembered no longer.",
		Query: []rest.Parameter{
			{Name: "forget", Kind: rest.Boolean, Doc: "Forget an execution that has ended, with its output. A conflict means that it runs."},
		},
		Success: []int{http.StatusAccepted}, Codes: []sdk.Code{sdk.CodeNotFound, sdk.CodeConflict, sdk.CodeUnavailable},
	}, h.end)
	rest.StreamEvents(a, rest.Operation{
		Method: http.MethodGet, Path: one + "/events", ID: "executionEvents", Tag: tagExecute,
		Summary: "Read the events of an execution, again",
		Details: "The events that POST /api/v1/execute streams, with an id each: all that are kept, or those behind one of them, and what comes until its end. " +
			"Whoever reads has no effect on the execution, and may leave and come back. Several may read at once.",
		Query: []rest.Parameter{
			{Name: "follow", Kind: rest.Boolean, Doc: "Go on with what comes, until the execution has ended. Default: true."},
			{Name: "after", Kind: rest.Text, Doc: "The id of the event behind which to begin; 0 for the beginning. Last-Event-ID comes before it."},
		},
		Continues: true,
		Success:   []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeNotFound, sdk.CodeConflict}, Unprocessable: true,
		Produces: sse.MediaType,
		Events: append(executionEvents(),
			rest.EventOf[client.EventsLost](client.EventLost, "Events are missing before the next one: there were too many to be kept, or the broker was restarted.")),
	}, h.events)
}

func (h rememberedRoutes) find(ctx context.Context, c rest.Call[rest.None]) (*executions.Execution, error) {
	if h.keeper == nil {
		return nil, sdk.Errorf(sdk.CodeNotFound, "this broker remembers no executions")
	}
	return h.keeper.FindEverywhere(ctx, c.Tenant, c.Path["execution"])
}

func (h rememberedRoutes) list(ctx context.Context, c rest.Call[rest.None]) (int, client.ExecutionList, error) {
	list := client.ExecutionList{Executions: []client.ExecutionInfo{}}
	if h.keeper != nil {
		all, err := h.keeper.ListEverywhere(ctx, c.Tenant)
		if err != nil {
			return 0, client.ExecutionList{}, err
		}
		for _, info := range all {
			list.Executions = append(list.Executions, infoOf(info))
		}
	}
	return http.StatusOK, list, nil
}

func (h rememberedRoutes) get(ctx context.Context, c rest.Call[rest.None]) (int, executionInfo, error) {
	e, err := h.find(ctx, c)
	if err != nil {
		return 0, executionInfo{}, err
	}
	answer, err := wholeOf(ctx, e, c.RequestID)
	return http.StatusOK, answer, err
}

func (h rememberedRoutes) end(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	e, err := h.find(ctx, c)
	if err != nil {
		return 0, rest.None{}, err
	}
	if c.Query.Boolean("forget") {
		return http.StatusAccepted, rest.None{}, h.keeper.Remove(e)
	}
	info := e.Info()
	switch {
	case info.State != executions.Running:
	case info.Instance == "" || h.instances.Interrupt(ctx, c.Tenant, info.Instance, info.ID) != nil:
		e.Cancel(errInterrupted) // it is about to begin, or to end
	}
	return http.StatusAccepted, rest.None{}, nil
}

func (h rememberedRoutes) events(ctx context.Context, c rest.Call[rest.None], to *rest.EventStream) error {
	e, err := h.find(ctx, c)
	if err != nil {
		return err
	}
	field, text := "Last-Event-ID", c.LastEventID
	if text == "" {
		field, text = "after", c.Query.Text("after")
	}
	after, err := e.ParseEventID(field, text)
	if err != nil {
		return err
	}
	if c.Query.Given("follow") && !c.Query.Boolean("follow") {
		return send(ctx, e, after, to, e.ReadKept)
	}
	return follow(ctx, e, after, to)
}

// errCutOff is told of an execution during which the broker has ended.
var errCutOff = sdk.Errorf(sdk.CodeUnavailable, "the broker ended while the execution ran: it may have run to its end or not, and what it has told is not kept. Look at its instance before it is done again")

// follow sends the events behind that number, until the execution has ended.
func follow(ctx context.Context, e *executions.Execution, after int64, to *rest.EventStream) error {
	return send(ctx, e, after, to, e.Read)
}

// reader returns the next events of an execution, as executions.Execution.Read does.
type reader func(ctx context.Context, after int64) (events []executions.Event, lost int64, ended bool, err error)

// send sends the events that a reader finds.
func send(ctx context.Context, e *executions.Execution, after int64, to *rest.EventStream, read reader) error {
	if err := to.Begin(ctx); err != nil {
		return err
	}
	for {
		events, lost, ended, err := read(ctx, after)
		switch {
		case err != nil:
			return err
		case ended && e.Info().State == executions.Unknown && e.Info().Last.Name == "":
			return errCutOff
		case ended:
			return nil
		}
		if lost > 0 {
			after += lost
			data, err := rest.Encode(client.EventsLost{Events: lost, Code: string(sdk.CodeNotFound), Detail: "these events are not kept any more"})
			if err != nil {
				return err
			}
			if err := to.SendEncoded(ctx, sse.Event{ID: e.EventID(after), Name: client.EventLost, Data: data}); err != nil {
				return err
			}
		}
		for _, event := range events {
			if err := to.SendEncoded(ctx, sse.Event{ID: e.EventID(event.Number), Name: event.Name, Data: event.Data}); err != nil {
				return err
			}
			after = event.Number
		}
	}
}

// infoOf is how an execution stands, without what became of it.
func infoOf(i executions.Info) client.ExecutionInfo {
	info := client.ExecutionInfo{
		ExecutionID: i.ID, State: string(i.State), Detached: i.Detached, InstanceID: i.Instance, Provider: i.Provider,
		CreatedAt: i.Created.UTC(), Events: i.Next - 1, EventsLost: i.First - 1, Webhook: i.Webhook,
	}
	if !i.Started.IsZero() {
		started := i.Started.UTC()
		info.StartedAt = &started
	}
	if !i.Ended.IsZero() {
		ended := i.Ended.UTC()
		info.EndedAt = &ended
	}
	return info
}

// executionInfo is the client's, as the broker writes it.
type executionInfo client.ExecutionInfo

// EncodeJSON keeps the result as it came.
func (i executionInfo) EncodeJSON() ([]byte, error) {
	execution := i.Execution
	i.Execution = nil
	body, err := rest.EncodeJSON(client.ExecutionInfo(i))
	if err != nil || execution == nil {
		return body, err
	}
	inner, err := Execution(*execution).EncodeJSON()
	if err != nil {
		return nil, err
	}
	body = append(append(body[:len(body)-1], `,"execution":`...), inner...)
	return append(body, '}'), nil
}

// wholeOf is how an execution stands, with what became of it, put together from its events.
func wholeOf(ctx context.Context, e *executions.Execution, requestID string) (executionInfo, error) {
	info := e.Info()
	answer, err := endOf(info, requestID)
	if err != nil || answer.Execution == nil {
		return answer, err
	}
	return answer, gather(ctx, e, info, answer.Execution)
}

// maxReport bounds the result in a report, in bytes.
const maxReport = 256 << 10

// Report is what is posted of an execution that has ended: how it stands, without its
// output, in the form that the Standard Webhooks specification advises.
func Report(info executions.Info) []byte {
	type data struct {
		client.ExecutionInfo
		// These hide those of the same name.
		Webhook   *string         `json:"webhook,omitempty"`
		Execution json.RawMessage `json:"execution,omitempty"`
		Result    json.RawMessage `json:"result,omitempty"`
	}
	report := struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      data      `json:"data"`
	}{Type: "execution.ended", Timestamp: info.Ended.UTC()}
	answer, err := endOf(info, "")
	report.Data.ExecutionInfo = client.ExecutionInfo(answer)
	if answer.Execution != nil && err == nil {
		report.Data.Execution = info.Last.Data // which has no output
	}
	if len(info.Result) <= maxReport {
		report.Data.Result = info.Result
	}
	body, err := rest.EncodeJSON(report)
	if err != nil { // it was JSON before
		return nil
	}
	return body
}

// endOf is how an execution stands, with what became of it but for its output.
func endOf(info executions.Info, requestID string) (executionInfo, error) {
	answer := executionInfo(infoOf(info))
	switch {
	case info.State == executions.Running:
		return answer, nil
	case info.Last.Name == "":
		p, ok := problem(errCutOff, requestID).Body.(*client.Problem)
		if ok {
			answer.Error = p
		}
		return answer, nil
	case info.Last.Name == client.EventError:
		answer.Error = &client.Problem{}
		if err := json.Unmarshal(info.Last.Data, answer.Error); err != nil {
			return answer, err
		}
		return answer, nil
	}
	answer.Execution = &client.Execution{}
	return answer, json.Unmarshal(info.Last.Data, answer.Execution)
}

// gather puts what was told into what became of it.
func gather(ctx context.Context, e *executions.Execution, info executions.Info, into *client.Execution) error {
	var output [2][]byte
	for after := int64(0); ; {
		events, lost, ended, err := e.Read(ctx, after)
		if err != nil {
			return err
		}
		if ended {
			break
		}
		after += lost
		for _, event := range events {
			after = event.Number
			switch event.Name {
			case client.EventStdout, client.EventStderr:
				var part client.OutputPart
				if err := json.Unmarshal(event.Data, &part); err != nil {
					return err
				}
				which := 0
				if event.Name == client.EventStderr {
					which = 1
				}
				output[which] = append(append(output[which], part.Text...), part.Base64...)
			case client.EventArtifact:
				var artifact client.Artifact
				if err := json.Unmarshal(event.Data, &artifact); err != nil {
					return err
				}
				into.Artifacts = append(into.Artifacts, artifact)
			}
		}
	}
	into.Stdout, into.StdoutBase64 = text(output[0], into.Truncated)
	into.Stderr, into.StderrBase64 = text(output[1], into.Truncated)
	into.Result = info.Result
	return nil
}
