package chaos_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ragflowClient does what RAGFlow does: it asks for the health, and runs code.
type ragflowClient struct{ *client }

// resends is how often RAGFlow's Go port sends a run again that was answered with 5xx.
const resends = 3

func (c *ragflowClient) act(ctx context.Context) {
	c.count++
	switch n := c.random.IntN(100); {
	case n < 80:
		c.run(ctx)
	case n < 90:
		c.ask(event{Operation: opHealth}, call{Method: http.MethodGet, Path: c.path("/healthz")}, func(*event, answer) {})
	default:
		pause(ctx, time.Duration(c.random.IntN(30))*time.Millisecond)
	}
}

// run runs code. One in four has a key, which RAGFlow's clients do not send and the door
// takes.
func (c *ragflowClient) run(ctx context.Context) {
	token := c.name("token")
	code := c.world.inFunction(token)
	e := event{Operation: opRun, Token: token}
	if c.random.IntN(2) == 0 {
		e.Key = c.key()
	}
	req := call{Method: http.MethodPost, Path: c.path("/run"), Header: map[string]string{"X-Sandbox-Token": tokenOf(c.tenant)}}
	req.body(map[string]any{
		"code_b64": base64.StdEncoding.EncodeToString([]byte(code)), "language": "python", "arguments": map[string]any{},
	})
	if e.Key != "" {
		req.Header[keyHeader] = e.Key
	}
	send := func(e event) event { return c.ask(e, req, readRAGFlow) }
	if e.Key != "" {
		c.again(ctx, e, true, send)
		return
	}
	for range 1 + resends {
		if done := send(e); done.Status < 500 {
			return
		}
		pause(ctx, betweenTries)
	}
}

// readRAGFlow reads the answer to a run, or a refusal.
func readRAGFlow(e *event, a answer) {
	var told struct {
		Status   string `json:"status"`
		ExitCode int    `json:"exit_code"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
		Code     string `json:"code"`
		Detail   any    `json:"detail"`
	}
	if !a.into(&told) {
		e.Outcome = "no JSON"
		return
	}
	e.Code, e.Detail = told.Code, told.Stderr
	if told.Stderr == "" && told.Detail != nil {
		e.Detail = fmt.Sprint(told.Detail) // a text, or a list of what is wrong
	}
	e.Printed = strings.TrimSpace(told.Stdout)
	if told.Status != "success" {
		e.Outcome = told.Status + " " + strconv.Itoa(told.ExitCode)
	}
}
