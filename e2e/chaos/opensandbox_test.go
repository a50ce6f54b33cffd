package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// image is the one that sandboxes are made of.
const image = "wait"

// openSandboxClient does what programs do that use an OpenSandbox SDK.
type openSandboxClient struct {
	*client
	// boxes are those that it has, by ID.
	boxes map[string]*box
}

func newOpenSandboxClient(c *client) *openSandboxClient {
	return &openSandboxClient{c, map[string]*box{}}
}

// box is a sandbox as its client knows it.
type box struct {
	id string
	// token opens its ports.
	token    string
	commands []started
	// files by path, with the token that each holds.
	files   []written
	expires time.Time
	// naps is whether it is paused then, and not destroyed.
	naps bool
}

type started struct{ id, token string }

type written struct{ path, token string }

// maxBoxes is how many sandboxes a client has at most.
const maxBoxes = 2

func (c *openSandboxClient) act(ctx context.Context) {
	c.count++
	n := c.random.IntN(100)
	if len(c.held) == 0 {
		n %= 20 // without one it makes one, or looks around
	}
	switch {
	case n < 10:
		if len(c.held) < maxBoxes {
			c.create(ctx)
		}
	case n < 15:
		c.list(ctx)
	case n < 20:
		c.steal()
	case n < 32:
		c.command()
	case n < 42:
		c.start()
	case n < 54:
		c.execute()
	case n < 62:
		c.write(ctx)
	case n < 70:
		c.read()
	case n < 76:
		c.follow()
	case n < 80:
		c.renew(ctx)
	case n < 86:
		c.freeze(ctx)
	case n < 91:
		c.thaw(ctx, c.box())
	case n < 96:
		c.destroy(ctx)
	default:
		pause(ctx, time.Duration(c.random.IntN(30))*time.Millisecond)
	}
}

// box draws one of those that it has.
func (c *openSandboxClient) box() *box { return c.boxes[c.held[c.random.IntN(len(c.held))]] }

// lifecycle is a request that the API key opens.
func (c *openSandboxClient) lifecycle(method, path string) call {
	return call{Method: method, Path: c.path("/v1/sandboxes" + path), Header: map[string]string{"OPEN-SANDBOX-API-KEY": tokenOf(c.tenant)}}
}

// inside is a request to the daemon in a sandbox, which the sandbox's token opens.
func (c *openSandboxClient) inside(b *box, method, path string) call {
	return call{Method: method, Path: c.path("/sandboxes/" + b.id + "/proxy/44772" + path), Header: map[string]string{"X-EXECD-ACCESS-TOKEN": b.token}}
}

// create makes a sandbox, half of them with a program to begin with, and asks for the way
// to it, as the SDKs do.
func (c *openSandboxClient) create(ctx context.Context) {
	e := event{Operation: opCreate, Key: c.key()}
	body := map[string]any{"image": map[string]any{"uri": image}, "timeout": 3600, "resourceLimits": map[string]any{"cpu": "1"}}
	if c.random.IntN(2) == 0 {
		var code string
		e.Token, code = c.script()
		body["entrypoint"] = []string{"/bin/bash", "-c", code}
	}
	req := c.lifecycle(http.MethodPost, "")
	req.body(body)
	if e.Key != "" {
		req.Header[keyHeader] = e.Key
	}
	e = c.again(ctx, e, e.Key != "", func(e event) event { return c.ask(e, req, readSandbox) })
	if c.keep(e); e.answered() && e.Told != "" {
		b := &box{id: e.Told, token: tokenOf(c.tenant), expires: e.Expires}
		c.boxes[b.id] = b
		c.endpoint(ctx, b)
	}
}

// sandbox is what the lifecycle API says of one.
type sandbox struct {
	ID     string `json:"id"`
	Status struct {
		State string `json:"state"`
	} `json:"status"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// readSandbox reads a sandbox, or a refusal.
func readSandbox(e *event, a answer) {
	var told sandbox
	if readRefusal(e, a); e.answered() && a.into(&told) {
		e.Told, e.Paused, e.Expires = told.ID, told.Status.State == "Paused", told.ExpiresAt
	}
}

// readRefusal reads what is in the answer if that is one.
func readRefusal(e *event, a answer) {
	var told struct{ Code, Message string }
	if !e.answered() && a.into(&told) {
		e.Code, e.Detail = told.Code, told.Message
	}
}

// endpoint asks for the address of a port and what opens it. Both stay as they are as long
// as the sandbox is there.
func (c *openSandboxClient) endpoint(ctx context.Context, b *box) {
	c.again(ctx, event{Operation: opEndpoint, Instance: b.id}, true, func(e event) event {
		return c.ask(e, c.lifecycle(http.MethodGet, "/"+b.id+"/endpoints/44772"), func(e *event, a answer) {
			var told struct {
				Endpoint string            `json:"endpoint"`
				Headers  map[string]string `json:"headers"`
			}
			if readRefusal(e, a); e.answered() && a.into(&told) {
				e.Way = told.Endpoint + " " + told.Headers["X-EXECD-ACCESS-TOKEN"]
				b.token = told.Headers["X-EXECD-ACCESS-TOKEN"]
			}
		})
	})
}

func (c *openSandboxClient) look(b *box) event {
	return c.ask(event{Operation: opLook, Instance: b.id}, c.lifecycle(http.MethodGet, "/"+b.id), readSandbox)
}

// command runs one and waits for its end.
func (c *openSandboxClient) command() {
	b := c.box()
	token, code := c.script()
	req := c.inside(b, http.MethodPost, "/command")
	req.body(map[string]any{"command": code})
	c.ask(event{Operation: opCommand, Instance: b.id, Token: token}, req, readEvents)
}

// start starts one in the background.
func (c *openSandboxClient) start() {
	b := c.box()
	token, code := c.script()
	req := c.inside(b, http.MethodPost, "/command")
	req.body(map[string]any{"command": code, "background": true})
	e := c.ask(event{Operation: opStart, Instance: b.id, Token: token}, req, readEvents)
	if e.answered() && e.Command != "" {
		b.commands = append(b.commands, started{e.Command, token})
	}
}

// follow reads the log of one that was started.
func (c *openSandboxClient) follow() {
	b := c.box()
	if len(b.commands) == 0 {
		return
	}
	of := b.commands[c.random.IntN(len(b.commands))]
	c.ask(event{Operation: opFollow, Instance: b.id, Command: of.id, Token: of.token},
		c.inside(b, http.MethodGet, "/command/"+of.id+"/logs"), readContent)
}

// execute runs code in the context of a language.
func (c *openSandboxClient) execute() {
	b := c.box()
	token, code := c.code()
	req := c.inside(b, http.MethodPost, "/code")
	req.body(map[string]any{"code": code, "context": map[string]any{"language": "python"}})
	c.ask(event{Operation: opExecute, Instance: b.id, Token: token}, req, readEvents)
}

// readEvents reads a stream of events. It tells of success by its last one.
func readEvents(e *event, a answer) {
	if readRefusal(e, a); !e.answered() {
		return
	}
	e.Outcome = "no last event"
	var printed strings.Builder
	for text := range bytes.SplitSeq(a.Body, []byte("\n\n")) {
		var one struct {
			Type  string
			Text  string
			Error struct{ Name, Value string }
		}
		if json.Unmarshal(text, &one) != nil {
			continue
		}
		switch one.Type {
		case "init":
			e.Command = one.Text
		case "stdout":
			printed.WriteString(one.Text)
		case "execution_complete":
			e.Outcome = ""
		case "error":
			e.Outcome = "error " + string(text)
		}
	}
	e.Printed = strings.TrimSpace(printed.String())
}

// write uploads a file, which gets no other content ever.
func (c *openSandboxClient) write(ctx context.Context) {
	b := c.box()
	token := c.name("file")
	path := "/workspace/" + token
	metadata, _ := json.Marshal(map[string]any{"path": path, "mode": 644 * c.random.IntN(2)}) // strings and numbers
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, part := range []struct{ name, file, content string }{{"metadata", "metadata", string(metadata)}, {"file", token, token}} {
		w, err := form.CreateFormFile(part.name, part.file)
		if err == nil {
			_, err = w.Write([]byte(part.content))
		}
		if err != nil {
			panic(err) // a buffer takes all
		}
	}
	_ = form.Close() // as above
	req := c.inside(b, http.MethodPost, "/files/upload")
	req.Header["Content-Type"], req.Body = form.FormDataContentType(), body.Bytes()
	e := event{Operation: opWrite, Instance: b.id, Path: path, Token: token}
	c.again(ctx, e, c.random.IntN(2) == 0, func(e event) event { return c.ask(e, req, readRefusal) })
	b.files = append(b.files, written{path, token})
}

// read downloads a file that it has tried to write.
func (c *openSandboxClient) read() {
	b := c.box()
	if len(b.files) == 0 {
		return
	}
	of := b.files[c.random.IntN(len(b.files))]
	c.ask(event{Operation: opRead, Instance: b.id, Path: of.path, Token: of.token},
		c.inside(b, http.MethodGet, "/files/download?path="+url.QueryEscape(of.path)), readContent)
}

// readContent reads an answer that is what was asked for.
func readContent(e *event, a answer) {
	if readRefusal(e, a); e.answered() {
		e.Printed = strings.TrimSpace(string(a.Body))
	}
}

// renew moves the end of a sandbox to a later time than ever before.
func (c *openSandboxClient) renew(ctx context.Context) {
	b := c.box()
	b.expires = b.expires.Add(time.Duration(1+c.random.IntN(60)) * time.Second)
	e := event{Operation: opRenew, Instance: b.id}
	req := c.lifecycle(http.MethodPost, "/"+b.id+"/renew-expiration")
	req.body(map[string]any{"expiresAt": b.expires.UTC()})
	c.again(ctx, e, true, func(e event) event {
		return c.ask(e, req, func(e *event, a answer) {
			var told sandbox
			if readRefusal(e, a); e.answered() && a.into(&told) {
				e.Expires = told.ExpiresAt
			}
		})
	})
}

// freeze pauses a sandbox, and lets it go on.
func (c *openSandboxClient) freeze(ctx context.Context) {
	b := c.box()
	c.turn(ctx, b, opPause)
	if c.random.IntN(2) == 0 {
		c.command() // in this sandbox, or in another one
	}
	c.thaw(ctx, b)
}

// thaw looks at a sandbox, and resumes it until it is not paused.
func (c *openSandboxClient) thaw(ctx context.Context, b *box) {
	for range retries {
		switch e := c.look(b); {
		case e.answered() && !e.Paused, e.Status == http.StatusNotFound:
			return
		case e.answered():
			c.turn(ctx, b, opResume)
		default:
			pause(ctx, betweenTries)
		}
	}
}

func (c *openSandboxClient) turn(ctx context.Context, b *box, to operation) {
	c.again(ctx, event{Operation: to, Instance: b.id}, c.random.IntN(2) == 0, func(e event) event {
		return c.ask(e, c.lifecycle(http.MethodPost, "/"+b.id+"/"+string(to)), readRefusal)
	})
}

// destroy asks until the sandbox is gone.
func (c *openSandboxClient) destroy(ctx context.Context) {
	at := c.random.IntN(len(c.held))
	id := c.held[at]
	c.held = append(c.held[:at], c.held[at+1:]...)
	delete(c.boxes, id)
	c.again(ctx, event{Operation: opDestroy, Instance: id}, true, func(e event) event {
		return c.ask(e, c.lifecycle(http.MethodDelete, "/"+id), readRefusal)
	})
}

// list looks at all, and ends those that are nobody's.
func (c *openSandboxClient) list(ctx context.Context) {
	all := c.ask(event{Operation: opList}, c.lifecycle(http.MethodGet, "?pageSize=200"), func(e *event, a answer) {
		var told struct{ Items []sandbox }
		if readRefusal(e, a); e.answered() && a.into(&told) {
			for _, one := range told.Items {
				e.List = append(e.List, one.ID)
			}
		}
	})
	for _, id := range c.seen.nobodys(all.List) {
		c.again(ctx, event{Operation: opDestroy, Instance: id}, false, func(e event) event {
			return c.ask(e, c.lifecycle(http.MethodDelete, "/"+id), readRefusal)
		})
	}
}

// steal reaches for what belongs to somebody else.
func (c *openSandboxClient) steal() {
	id := c.seen.ofOthers(c.tenant, c.door, c.random)
	if id == "" {
		return
	}
	e := event{Operation: opSteal, Instance: id}
	b := &box{id: id, token: tokenOf(c.tenant)}
	if len(c.held) > 0 && c.random.IntN(2) == 0 {
		b.token = c.box().token // that of another sandbox
	}
	switch c.random.IntN(4) {
	case 0:
		c.ask(e, c.lifecycle(http.MethodGet, "/"+id), readRefusal)
	case 1:
		c.ask(e, c.lifecycle(http.MethodDelete, "/"+id), readRefusal)
	case 2:
		c.ask(e, c.lifecycle(http.MethodGet, "/"+id+"/endpoints/44772"), readRefusal)
	default:
		_, code := c.script()
		req := c.inside(b, http.MethodPost, "/command")
		req.body(map[string]any{"command": code})
		c.ask(e, req, readRefusal)
	}
}
