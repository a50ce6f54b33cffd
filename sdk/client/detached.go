package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// The states of an execution.
const (
	ExecutionRunning     = "running"
	ExecutionSucceeded   = "succeeded"
	ExecutionFailed      = "failed"
	ExecutionInterrupted = "interrupted"
	ExecutionUnknown     = "unknown"
)

// ExecutionInfo is how an execution stands, that runs or that has ended not long ago.
type ExecutionInfo struct {
	_           struct{}   `additionalProperties:"true"`
	ExecutionID string     `json:"execution_id"`
	State       string     `json:"state" enum:"running,succeeded,failed,interrupted,unknown" doc:"failed: also by a limit or a code policy, or since it could not be begun; error or execution says which. unknown: it may have run, and its provider or the broker has ended meanwhile. Values may be added."`
	Detached    bool       `json:"detached" doc:"Whether it outlives its caller."`
	InstanceID  string     `json:"instance_id,omitempty" doc:"Absent before it has begun."`
	Provider    string     `json:"provider,omitempty" doc:"Absent before it has begun."`
	CreatedAt   time.Time  `json:"created_at"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	Events      int64      `json:"events" doc:"How many events there have been."`
	EventsLost  int64      `json:"events_lost,omitempty" doc:"How many of them are not kept any more, the first ones: output is missing then."`
	Webhook     string     `json:"webhook,omitempty" enum:"pending,delivered,failed" doc:"How the delivery of its result stands; absent if there is no webhook."`
	// Execution and Error are absent in lists.
	Execution *Execution `json:"execution,omitempty" doc:"What became of it, when it has ended so, as POST /api/v1/execute would have answered."`
	Error     *Problem   `json:"error,omitempty" doc:"Or the problem with which it has ended."`
}

// ExecutionList has executions, the newest first.
type ExecutionList struct {
	_          struct{}        `additionalProperties:"true"`
	Executions []ExecutionInfo `json:"executions" nullable:"false"`
}

// EventsLost is the data of an EventLost.
type EventsLost struct {
	_      struct{} `additionalProperties:"true"`
	Events int64    `json:"events" doc:"How many are missing before the next one."`
	Code   string   `json:"code" example:"SB013"`
	Detail string   `json:"detail"`
}

const pathExecutions = "/api/v1/executions"

func execution(id string) string { return pathExecutions + "/" + url.PathEscape(id) }

// Executions are those of the caller, by their IDs.
type Executions struct{ client *Client }

// ExecutionsOf are those of a client's caller, wherever they run.
func ExecutionsOf(c *Client) Executions { return Executions{c} }

// Start begins an execution that outlives its caller.
func (e Executions) Start(ctx context.Context, req ExecuteRequest) (ExecutionInfo, error) {
	req.Detached = true
	return ask[ExecutionInfo](ctx, e.client, Request{Method: post, Path: "/api/v1/execute", Body: req})
}

// StartIn begins an execution in an instance that outlives its caller.
func (e Executions) StartIn(ctx context.Context, id string, req InstanceExecuteRequest) (ExecutionInfo, error) {
	req.Detached = true
	return ask[ExecutionInfo](ctx, e.client, Request{Method: post, Path: below(id, "execute"), Body: req})
}

// List has those that run and those that are remembered, the newest first.
func (e Executions) List(ctx context.Context) (ExecutionList, error) {
	return ask[ExecutionList](ctx, e.client, Request{Method: get, Path: pathExecutions})
}

// Get looks at one.
func (e Executions) Get(ctx context.Context, id string) (ExecutionInfo, error) {
	return ask[ExecutionInfo](ctx, e.client, Request{Method: get, Path: execution(id)})
}

// Interrupt does to one what Ctrl-C does in a terminal, wherever it runs.
func (e Executions) Interrupt(ctx context.Context, id string) error {
	return e.client.tell(ctx, http.MethodDelete, execution(id), nil)
}

// Forget has the broker forget one that has ended, with its output.
func (e Executions) Forget(ctx context.Context, id string) error {
	return e.client.tell(ctx, http.MethodDelete, execution(id)+"?forget=true", nil)
}

// Events are the events of one, behind the one of that ID; empty for all that are
// kept. With follow they go on until it has ended: where the connection breaks off, it is
// made again, behind the last event, a few times.
func (e Executions) Events(ctx context.Context, id, after string, follow bool) (*Events, error) {
	again := func(ctx context.Context, after string) (*http.Response, error) {
		query := url.Values{}
		if after != "" {
			query.Set("after", after)
		}
		if !follow {
			query.Set("follow", "false")
		}
		return e.client.Do(ctx, Request{Method: get, Path: execution(id) + "/events", Query: query, Accept: acceptEvents})
	}
	resp, err := again(ctx, after) //nolint:bodyclose // Events.Close does
	if err != nil {
		return nil, err
	}
	if !follow {
		return NewEvents(resp.Body), nil
	}
	return resuming(ctx, resp, after, again), nil
}
