package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"
)

// client of the REST API. It is fasthttp's because it shares the machine with
// what is measured, and takes least of it.
type client struct {
	http *fasthttp.HostClient
}

func newClient(address string) *client {
	return &client{&fasthttp.HostClient{
		// A broker closes connections above a thousand that have not shown a token yet,
		// as many new ones have not where something has held everybody up.
		Addr: address, MaxConns: 900, MaxConnWaitTimeout: 5 * time.Minute,
		ReadTimeout: 5 * time.Minute, WriteTimeout: time.Minute,
		RetryIfErr: func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
	}}
}

// do sends a request; body is JSON, or nil for none.
func (c *client) do(method, path string, body []byte) (status int, answer []byte, err error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(method)
	req.SetRequestURI("http://" + c.http.Addr + path)
	req.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		req.Header.SetContentType("application/json")
		req.SetBodyRaw(body)
	}
	if err := c.http.Do(req, resp); err != nil {
		return 0, nil, err
	}
	return resp.StatusCode(), append([]byte(nil), resp.Body()...), nil
}

// ask is do with JSON made of request and read into answer, unless they are nil.
// Any answer but a good one is an error.
func (c *client) ask(method, path string, request, answer any) error {
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	status, text, err := c.do(method, path, body)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case status >= http.StatusMultipleChoices:
		return fmt.Errorf("%s %s: HTTP %d: %s", method, path, status, text)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(text, answer)
}

// program is code with what it prints.
type program struct{ language, template, code, prints string }

// The same program in three languages.
var (
	pythonHello = program{"python", "python", "print(1)", "1\n"}
	nodeHello   = program{"javascript", "nodejs", "console.log(1)", "1\n"}
	bashHello   = program{"bash", "bash", "echo 1", "1\n"}
)

func (p program) check(out string) error {
	if out != p.prints {
		return fmt.Errorf("%s printed %q", p.code, out)
	}
	return nil
}

func (p program) request() map[string]any {
	return map[string]any{"language": p.language, "code": p.code}
}

// executed is what the answer to an execution must hold.
type executed struct {
	Status string `json:"status"`
	Stdout string `json:"stdout"`
}

// oneShot runs a program in a fresh sandbox.
func (c *client) oneShot(p program) error { return c.run("/api/v1/execute", p, p.request()) }

// inSession runs a program in the sandbox of a session.
func (c *client) inSession(p program, session string) error {
	request := p.request()
	request["session_id"] = session
	return c.run("/api/v1/execute", p, request)
}

func (c *client) run(path string, p program, request map[string]any) error {
	var answer executed
	if err := c.ask(http.MethodPost, path, request, &answer); err != nil {
		return err
	}
	return p.check(answer.Stdout)
}

// create makes an instance and returns its ID.
func (c *client) create(template string) (string, error) {
	var made struct {
		ID string `json:"id"`
	}
	err := c.ask(http.MethodPost, "/api/v1/instances", map[string]any{"template": template}, &made)
	return made.ID, err
}

// lifeCycle creates an instance, runs a program in it and destroys it.
func (c *client) lifeCycle(p program) error {
	id, err := c.create(p.template)
	if err != nil {
		return err
	}
	path := "/api/v1/instances/" + id
	if err := c.run(path+"/execute", p, p.request()); err != nil {
		return err
	}
	return c.ask(http.MethodDelete, path, nil, nil)
}
