package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Caller is for whom a tool works, and how.
type Caller struct {
	// Client asks the broker with the caller's token.
	Client *client.Client
	// Provider is the label of the one that instances are made on; empty for the usual one.
	Provider string
	// Wait is how long a request may wait for its turn.
	Wait time.Duration
	// Address is where the caller reaches the broker, such as https://sandboxes.example.com;
	// empty where that is the one that the broker names in its answers.
	Address string
	// RequestID of the request that a call came with; empty where there is none.
	RequestID string
	// Gone ends with the caller, beside the context of a call; nil where that says it.
	Gone context.Context
}

// instructions tell a model what the tools are for, once in a conversation.
const instructions = `Runs code and shell commands in sandboxes. Without a session each run has a fresh sandbox. With a session, a name of your choice, files, installed packages and background commands stay until the session ends; context "default" keeps variables too. Files are below /workspace. What is written to /workspace/artifacts comes back with the run; PNG and JPEG are shown.`

// progressEvery is how often a caller hears of a run that goes on.
const progressEvery = time.Second

// NewServer returns a server with the thirteen tools. For each call it asks who calls; an
// error of that is the tool's.
func NewServer(version string, caller func(context.Context) (Caller, error)) *mcp.Server {
	return newServer(version, caller, progressEvery)
}

func newServer(version string, caller func(context.Context) (Caller, error), every time.Duration) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "sandbox-broker", Title: "Sandbox broker", Version: version}, &mcp.ServerOptions{
		Instructions: instructions,
		// The list of tools never changes, and nothing is logged to clients.
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	t := &tools{server: server, caller: caller, every: every}
	server.AddReceivingMiddleware(t.plainArguments)
	t.addRuns()
	t.addCommands()
	t.addFiles()
	t.addSessions()
	return server
}

// tools are those of a server.
type tools struct {
	server *mcp.Server
	caller func(context.Context) (Caller, error)
	every  time.Duration
}

// call is one call of a tool.
type call struct {
	Caller
	// tell says to the caller how far a run is; nil where nobody wants to know.
	tell  func(ctx context.Context, seconds float64, message string)
	every time.Duration
}

// What a tool may do, for hosts that ask before.
var (
	readOnly   = mcp.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: new(false), IdempotentHint: true, OpenWorldHint: new(false)}
	runs       = mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)}
	overwrites = mcp.ToolAnnotations{DestructiveHint: new(true), IdempotentHint: true, OpenWorldHint: new(false)}
	changes    = mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(false)}
	publishes  = mcp.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(true)}
	makesOnce  = mcp.ToolAnnotations{DestructiveHint: new(false), IdempotentHint: true, OpenWorldHint: new(false)}
)

// add adds a tool. A refusal of the broker becomes an error of the tool.
func add[In any](t *tools, name, title, description string, hints mcp.ToolAnnotations, handle func(call, context.Context, In) (*mcp.CallToolResult, error)) {
	hints.Title = title
	mcp.AddTool(t.server, &mcp.Tool{Name: name, Description: description, Annotations: &hints},
		func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
			who, err := t.caller(ctx)
			if err != nil {
				return nil, nil, err
			}
			if who.Gone != nil {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(who.Gone, cancel)()
			}
			c := call{Caller: who, every: t.every}
			if token := req.Params.GetProgressToken(); token != nil {
				c.tell = func(ctx context.Context, seconds float64, message string) {
					// A caller who does not hear it has left, which the context says.
					_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: seconds, Message: message})
				}
			}
			result, err := handle(c, ctx, in)
			if err != nil {
				return refusal(err, who.RequestID), nil, nil
			}
			return result, nil, nil
		})
}

// maxRefusal bounds the text of a refusal, in bytes.
const maxRefusal = 4000

// refusal is what a tool answers that was refused or has failed: the code, what is wrong,
// and what to do.
func refusal(err error, requestID string) *mcp.CallToolResult {
	problem, ok := errors.AsType[*client.Problem](err)
	if !ok { // the broker's answer was none, or broke off
		problem, _ = errors.AsType[*client.Problem](refused(sdk.CodeUnavailable, "%s; what was asked for may have been done.", withoutURL(err)))
	}
	told := *problem
	told.Detail = argumentNames.Replace(told.Detail)
	told.RequestID = cmp.Or(told.RequestID, requestID)
	told.Diagnostics = nil // these are for administrators
	text := told.Code + " " + told.Title + ": " + strings.TrimSuffix(told.Detail, ".") + "."
	if code := sdk.Code(told.Code); code.Known() {
		text += " " + code.Info().Advice
	}
	result := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: shortened(text, maxRefusal)}}}
	if encoded, err := json.Marshal(told); err == nil && len(encoded) <= maxStructured {
		result.StructuredContent = json.RawMessage(encoded)
	}
	return result
}

// withoutURL is the text of an error without the address that was asked, which is this
// process's own matter.
func withoutURL(err error) string {
	if asked, ok := errors.AsType[*url.Error](err); ok {
		return strings.Replace(err.Error(), asked.Error(), asked.Err.Error(), 1)
	}
	return err.Error()
}

// argumentNames are those of arguments that the REST API has under other names.
var argumentNames = strings.NewReplacer("session_id", "session", "wait_ms", "wait")

// refused is a refusal of the tools themselves, in the form of the broker's.
func refused(code sdk.Code, detail string, values ...any) error {
	info := code.Info()
	return &client.Problem{
		Type: "urn:sandbox-broker:" + string(code), Title: info.Title, Status: info.HTTPStatus, Detail: fmt.Sprintf(detail, values...),
		Code: string(code), Retryable: info.Retryable,
	}
}

// repeatedValue is where a message about arguments repeats what was given: a variable's
// value may be a secret.
var repeatedValue = regexp.MustCompile(`(?s)\b(type|enum|const|pattern): .* (has type|does not|has)`)

// plainArguments gives the SDK's refusals of arguments the form of the broker's.
func (t *tools) plainArguments(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		told, ok := result.(*mcp.CallToolResult)
		if !ok || told == nil || told.GetError() == nil {
			return result, err
		}
		who, _ := t.caller(ctx) // it is no matter of arguments who calls
		text := repeatedValue.ReplaceAllString(told.GetError().Error(), "$1: what was given $2")
		return refusal(refused(sdk.CodeInvalidRequest, "%s", shortened(text, maxRefusal/2)), who.RequestID), err
	}
}

// found is the instance that a session has.
func (c call) found(ctx context.Context, session string) (client.Instance, error) {
	query := url.Values{"session_id": {session}}
	if c.Provider != "" {
		query.Set("provider", c.Provider)
	}
	if session == "" {
		return client.Instance{}, refused(sdk.CodeInvalidRequest, "session: must not be empty.")
	}
	list, err := c.Client.Instances(ctx, query)
	if err != nil {
		return client.Instance{}, err
	}
	if len(list.Instances) == 0 {
		return client.Instance{}, refused(sdk.CodeNotFound, "There is no session of this name. What was in it is gone; run_code, run_command, write_file and create_session begin a new one.")
	}
	return list.Instances[0], nil
}

// begun is the instance that a session has, or gets now.
func (c call) begun(ctx context.Context, session string) (client.Instance, error) {
	if session == "" {
		return client.Instance{}, refused(sdk.CodeInvalidRequest, "session: must not be empty.")
	}
	return c.Client.CreateInstance(ctx, client.CreateInstanceRequest{SessionID: session, Provider: c.Provider, WaitMS: c.Wait.Milliseconds()})
}

// answered is what a tool says: a text for the model, and the same for programs.
func answered(text string, structured any) *mcp.CallToolResult {
	result := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: shortened(text, maxText)}}}
	if encoded, err := json.Marshal(structured); err == nil && len(encoded) <= maxStructured {
		result.StructuredContent = json.RawMessage(encoded)
	}
	return result
}

func problemOf(err error) *client.Problem {
	problem, _ := errors.AsType[*client.Problem](err)
	return problem
}
