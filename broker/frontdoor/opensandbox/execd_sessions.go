package opensandbox

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// registerSessions registers the routes of bash sessions, which are contexts of bash.
func (d execd) registerSessions(base string) {
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/session"}, d.createSession)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/session/{session}/run"}, d.runInSession)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: base + "/session/{session}"}, d.deleteSession)
}

type session struct {
	ID string `json:"session_id"`
}

func (d execd) createSession(ctx context.Context, c rest.Call[rest.Raw]) (int, session, error) {
	var body struct {
		Cwd string `json:"cwd"`
	}
	if len(bytes.TrimSpace(c.Body)) > 0 {
		if err := readObject(c.Body, &body); err != nil {
			return 0, session{}, err
		}
	}
	var made sdk.CodeContext
	err := d.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		req := sdk.CreateContextRequest{Cwd: body.Cwd}
		err := lease.BoundContext(&req, string(sdk.Bash))
		if err == nil {
			made, err = contexts.CreateContext(ctx, req)
		}
		return err
	})
	return http.StatusOK, session{made.ID}, err
}

// runInSession runs a command in a session. A directory that is given holds from then on.
func (d execd) runInSession(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	var body struct {
		Command   string `json:"command"`
		Cwd       string `json:"cwd"`
		TimeoutMS *int64 `json:"timeout"`
	}
	if err := readObject(c.Body, &body); err != nil {
		return err
	}
	req := instance.ExecuteRequest{Code: body.Command, ContextID: c.Path["session"], Language: string(sdk.Bash)}
	switch {
	case strings.TrimSpace(body.Command) == "":
		return refused("command", "must not be empty")
	case body.TimeoutMS != nil && (*body.TimeoutMS < 1 || *body.TimeoutMS > maxTimeout.Milliseconds()):
		return refused("timeout", "must be 1 at least, in milliseconds")
	case body.TimeoutMS != nil:
		req.Timeout = time.Duration(*body.TimeoutMS) * time.Millisecond
	}
	if body.Cwd != "" { // eval takes what cannot stand in braces: a comment, a backslash at the end
		req.Code = "cd -- " + frontdoor.Quoted(body.Cwd) + " && eval " + frontdoor.Quoted(body.Command)
	}
	return d.executeIn(w, r, c, req, true)
}

func (d execd) deleteSession(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	return http.StatusOK, rest.None{}, d.endContext(ctx, c.Tenant, c.Path["id"], c.Path["session"])
}
