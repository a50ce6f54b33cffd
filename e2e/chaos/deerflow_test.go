package chaos_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// deerFlowClient does what DeerFlow's gateway does: it names its sandboxes itself, and asks
// for one of the same name again when that has ended.
type deerFlowClient struct {
	*client
	// boxes are those that it has, by the names of the instances. The token of one is its
	// URL.
	boxes map[string]*box
	// names of the sandboxes, by those of the instances.
	names map[string]string
}

func newDeerFlowClient(c *client) *deerFlowClient {
	return &deerFlowClient{c, map[string]*box{}, map[string]string{}}
}

const deerFlowData = "/mnt/user-data"

func (c *deerFlowClient) act(ctx context.Context) {
	c.count++
	n := c.random.IntN(100)
	if len(c.held) == 0 {
		n %= 20 // without one it makes one, or looks around
	}
	switch {
	case n < 10:
		c.create(ctx)
	case n < 15:
		c.list()
	case n < 20:
		c.steal()
	case n < 40:
		c.typeIn()
	case n < 52:
		c.command()
	case n < 66:
		c.write(ctx)
	case n < 80:
		c.read()
	case n < 88:
		c.look()
	case n < 94:
		c.destroy(ctx)
	default:
		pause(ctx, time.Duration(c.random.IntN(30))*time.Millisecond)
	}
}

// box draws one of those that it has.
func (c *deerFlowClient) box() *box { return c.boxes[c.held[c.random.IntN(len(c.held))]] }

// provisioner is a request that the key opens.
func (c *deerFlowClient) provisioner(method, path string) call {
	return call{Method: method, Path: c.path("/api/sandboxes" + path), Header: map[string]string{"X-API-Key": tokenOf(c.tenant)}}
}

// inside is a request to a sandbox, which its URL opens.
func (c *deerFlowClient) inside(b *box, method, path string) call {
	return call{Method: method, Path: b.token + "/v1" + path, Header: map[string]string{}}
}

// create asks for a sandbox, again and again for the same ones. What is there is answered
// as it was.
func (c *deerFlowClient) create(ctx context.Context) {
	name := fmt.Sprintf("df-%d-%d", c.number, c.random.IntN(maxBoxes))
	e := event{Operation: opCreate, Session: name, Path: deerFlowData + "/outputs"}
	req := c.provisioner(http.MethodPost, "")
	req.body(map[string]any{"sandbox_id": name, "thread_id": name, "user_id": "default", "include_legacy_skills": false})
	e = c.again(ctx, e, true, func(e event) event { return c.ask(e, req, readDeerFlowSandbox) })
	if c.keep(e); !e.answered() || e.Told == "" {
		return
	}
	c.forgetOthers(name, e.Told)
	if c.boxes[e.Told] == nil {
		c.boxes[e.Told] = &box{id: e.Told, token: e.Way, files: []written{{path: e.Path}}}
	}
	c.names[e.Told] = name
}

// forgetOthers drops what had the name before and has ended: whoever asks for its end by that
// name ends what has the name now.
func (c *deerFlowClient) forgetOthers(name, id string) {
	c.held = slices.DeleteFunc(c.held, func(other string) bool {
		return other != id && c.names[other] == name
	})
}

// deerFlowSandbox is what the provisioner says of one.
type deerFlowSandbox struct {
	URL    string `json:"sandbox_url"`
	Status string `json:"status"`
}

// way is the path of its URL, and the instance that this names.
func (s deerFlowSandbox) way() (path, instance string) {
	if at, err := url.Parse(s.URL); err == nil {
		path = at.Path
	}
	_, token, _ := strings.Cut(path, "/s/")
	instance, _, _ = strings.Cut(token, "-")
	return path, instance
}

// readDeerFlowSandbox reads a sandbox, or a refusal.
func readDeerFlowSandbox(e *event, a answer) {
	var told deerFlowSandbox
	if readDeerFlowRefusal(e, a); !e.answered() || !a.into(&told) {
		return
	}
	way, instance := told.way()
	e.Way = way
	switch {
	case told.Status != "Running":
		e.Outcome = told.Status
	case e.Operation == opCreate:
		e.Told = instance
	case instance != e.Instance:
		e.Outcome = "it is " + instance
	}
}

// readDeerFlowRefusal reads what is in the answer if that is one.
func readDeerFlowRefusal(e *event, a answer) {
	readRefusal(e, a)
	if e.Status == http.StatusGone && e.Code == codeNotFound { // so the door tells what clients shall not take for a route
		e.Status = http.StatusNotFound
	}
}

func (c *deerFlowClient) look() {
	b := c.box()
	c.ask(event{Operation: opLook, Instance: b.id}, c.provisioner(http.MethodGet, "/"+c.names[b.id]), readDeerFlowSandbox)
}

// typeIn runs a program in the shell.
func (c *deerFlowClient) typeIn() { c.program("/shell/exec", map[string]any{"no_change_timeout": 600}) }

// command runs one beside the shell.
func (c *deerFlowClient) command() {
	c.program("/bash/exec", map[string]any{"env": map[string]string{"A": "b"}, "hard_timeout": 600.0})
}

func (c *deerFlowClient) program(route string, body map[string]any) {
	b := c.box()
	token, code := c.script()
	body["command"] = code
	req := c.inside(b, http.MethodPost, route)
	req.body(body)
	c.ask(event{Operation: opCommand, Instance: b.id, Token: token}, req, func(e *event, a answer) {
		var told struct {
			Data struct{ Status, Output, Stdout string }
		}
		if readDeerFlowRefusal(e, a); !e.answered() || !a.into(&told) {
			return
		}
		e.Printed = strings.TrimSpace(told.Data.Output + told.Data.Stdout)
		if told.Data.Status != "completed" {
			e.Outcome = told.Data.Status
		}
	})
}

// write writes a file, which gets no other content ever: a text, or base64 of it.
func (c *deerFlowClient) write(ctx context.Context) {
	b := c.box()
	token := c.name("file")
	path := deerFlowData + "/uploads/" + token
	body := map[string]any{"file": path, "content": token}
	if c.random.IntN(2) == 0 {
		body["content"], body["encoding"] = base64.StdEncoding.EncodeToString([]byte(token)), "base64"
	}
	req := c.inside(b, http.MethodPost, "/file/write")
	req.body(body)
	e := event{Operation: opWrite, Instance: b.id, Path: path, Token: token}
	c.again(ctx, e, c.random.IntN(2) == 0, func(e event) event { return c.ask(e, req, readDeerFlowRefusal) })
	b.files = append(b.files, written{path, token})
}

// read reads a file that it has tried to write, or looks whether a directory is there by
// asking for the sandbox, which is not found without it.
func (c *deerFlowClient) read() {
	b := c.box()
	of := b.files[c.random.IntN(len(b.files))]
	e := event{Operation: opRead, Instance: b.id, Path: of.path, Token: of.token}
	if of.token == "" {
		c.ask(e, c.provisioner(http.MethodGet, "/"+c.names[b.id]), readDeerFlowRefusal)
		return
	}
	if c.random.IntN(2) == 0 {
		c.ask(e, c.inside(b, http.MethodGet, "/file/download?path="+url.QueryEscape(of.path)), func(e *event, a answer) {
			if readDeerFlowRefusal(e, a); e.answered() {
				e.Printed = strings.TrimSpace(string(a.Body))
			}
		})
		return
	}
	req := c.inside(b, http.MethodPost, "/file/read")
	req.body(map[string]any{"file": of.path})
	c.ask(e, req, func(e *event, a answer) {
		var told struct{ Data struct{ Content string } }
		if readDeerFlowRefusal(e, a); e.answered() && a.into(&told) {
			e.Printed = strings.TrimSpace(told.Data.Content)
		}
	})
}

// destroy asks until the sandbox is gone.
func (c *deerFlowClient) destroy(ctx context.Context) {
	at := c.random.IntN(len(c.held))
	id := c.held[at]
	c.held = append(c.held[:at], c.held[at+1:]...)
	delete(c.boxes, id)
	c.again(ctx, event{Operation: opDestroy, Instance: id}, true, func(e event) event {
		return c.ask(e, c.provisioner(http.MethodDelete, "/"+c.names[id]), readDeerFlowRefusal)
	})
}

// list looks at all. Those that nobody was told of have names, by which their client asks
// for them again.
func (c *deerFlowClient) list() {
	c.ask(event{Operation: opList}, c.provisioner(http.MethodGet, ""), func(e *event, a answer) {
		var told struct{ Sandboxes []deerFlowSandbox }
		if readDeerFlowRefusal(e, a); e.answered() && a.into(&told) {
			for _, one := range told.Sandboxes {
				_, instance := one.way()
				e.List = append(e.List, instance)
			}
		}
	})
}

// steal reaches for what belongs to somebody else, with the signature of another URL.
func (c *deerFlowClient) steal() {
	id := c.seen.ofOthers(c.tenant, c.door, c.random)
	if id == "" {
		return
	}
	token := id + "-" + strings.Repeat("0", 40)
	if len(c.held) > 0 && c.random.IntN(2) == 0 {
		_, mine, _ := strings.Cut(c.box().token, "-")
		token = id + "-" + mine
	}
	b := &box{id: id, token: c.path("/s/" + token)}
	e := event{Operation: opSteal, Instance: id}
	if c.random.IntN(2) == 0 {
		c.ask(e, c.inside(b, http.MethodGet, "/file/download?path="+deerFlowData), readDeerFlowRefusal)
		return
	}
	_, code := c.script()
	req := c.inside(b, http.MethodPost, []string{"/shell/exec", "/bash/exec"}[c.random.IntN(2)])
	req.body(map[string]any{"command": code})
	c.ask(e, req, readDeerFlowRefusal)
}
