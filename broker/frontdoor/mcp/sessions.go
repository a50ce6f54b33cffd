package mcp

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

type createSessionArguments struct {
	Session  string            `json:"session" jsonschema:"a name of your choice: letters, digits, _ . -"`
	Template string            `json:"template,omitempty" jsonschema:"what the sandbox is made for, such as python or nodejs"`
	TTL      float64           `json:"ttl,omitempty" jsonschema:"seconds that it lives after its last use"`
	Env      map[string]string `json:"env,omitempty" jsonschema:"environment variables of all that runs in it"`
}

type listSessionsArguments struct {
	After string `json:"after,omitempty" jsonschema:"next of the page before"`
}

type endSessionArguments struct {
	Session string `json:"session"`
}

type exposePortArguments struct {
	Session string  `json:"session"`
	Port    int     `json:"port" jsonschema:"what a server in the session listens on"`
	TTL     float64 `json:"ttl,omitempty" jsonschema:"seconds that the link is valid; 600 unless given"`
}

func (t *tools) addSessions() {
	add(t, "expose_port", "Link to a port", "Make a link by which a browser reaches a server that listens in a session.", publishes, call.exposePort)
	add(t, "create_session", "Create a session", "Begin a session with settings of its own. Other tools begin one with the usual settings.", makesOnce, call.createSession)
	add(t, "list_sessions", "List sessions", "List the sessions that there are.", readOnly, call.listSessions)
	add(t, "end_session", "End a session", "End a session and all that is in it.", overwrites, call.endSession)
}

func (c call) createSession(ctx context.Context, in createSessionArguments) (*mcp.CallToolResult, error) {
	if in.Session == "" {
		return nil, refused(sdk.CodeInvalidRequest, "session: must not be empty.")
	}
	before, err := c.Client.Instances(ctx, url.Values{"session_id": {in.Session}})
	if err != nil {
		return nil, err
	}
	instance, err := c.Client.CreateInstance(ctx, client.CreateInstanceRequest{
		SessionID: in.Session, Template: in.Template, TTL: in.TTL, Env: in.Env, Provider: c.Provider, WaitMS: c.Wait.Milliseconds(),
	})
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("session %s: %s, %s, until %s unless it is used\n", instance.SessionID, instance.Provider, instance.Template, instance.ExpiresAt.Format(time.RFC3339))
	for _, other := range before.Instances {
		if other.ID == instance.ID {
			text += "It was there before; what was given now has changed nothing.\n"
		}
	}
	return answered(text, instance), nil
}

func (c call) listSessions(ctx context.Context, in listSessionsArguments) (*mcp.CallToolResult, error) {
	query := url.Values{"limit": {"50"}}
	setGiven(query, "after", in.After)
	list, err := c.Client.Instances(ctx, query)
	if err != nil {
		return nil, err
	}
	structured, shown := fitting(len(list.Instances), func(count int) any {
		page := client.InstanceList{Instances: list.Instances[:count], Next: list.Next}
		if count > 0 && count < len(list.Instances) {
			page.Next = list.Instances[count-1].ID
		}
		return page
	})
	page, _ := structured.(client.InstanceList)
	var text strings.Builder
	for _, instance := range list.Instances[:shown] {
		fmt.Fprintf(&text, "%s: %s, %s, %s, until %s\n", instance.SessionID, instance.Provider, instance.Template, instance.State, instance.ExpiresAt.Format(time.RFC3339))
	}
	if shown == 0 {
		text.WriteString("no sessions\n")
	}
	if page.Next != "" {
		fmt.Fprintf(&text, "There are more: after %s.\n", page.Next)
	}
	return answered(text.String(), structured), nil
}

func (c call) endSession(ctx context.Context, in endSessionArguments) (*mcp.CallToolResult, error) {
	instance, err := c.found(ctx, in.Session)
	if problem := problemOf(err); problem != nil && problem.Code == string(sdk.CodeNotFound) {
		return answered("There is no session of this name.\n", map[string]any{"session": in.Session, "ended": false}), nil
	}
	if err != nil {
		return nil, err
	}
	if err := c.Client.DestroyInstance(ctx, instance.ID); err != nil {
		return nil, err
	}
	return answered("The session has ended.\n", map[string]any{"session": in.Session, "ended": true}), nil
}

func (c call) exposePort(ctx context.Context, in exposePortArguments) (*mcp.CallToolResult, error) {
	instance, err := c.found(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	if in.Port < 1 || in.Port > 65535 {
		return nil, refused(sdk.CodeInvalidRequest, "port: must be from 1 to 65535.")
	}
	preview, err := c.Client.CreatePreview(ctx, instance.ID, in.Port, client.CreatePreviewRequest{TTL: in.TTL})
	if err != nil {
		return nil, err
	}
	if c.Address != "" {
		preview.URL = c.Address + preview.Path
	}
	return answered(fmt.Sprintf("%s\nThe link is valid until %s. Who has it needs no token: treat it as a secret.\n", preview.URL, preview.ExpiresAt.Format(time.RFC3339)), preview), nil
}
