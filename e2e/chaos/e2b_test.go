package chaos_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// e2bClient does what programs do that use E2B's SDKs.
type e2bClient struct {
	*client
	// boxes are those that it has, by ID. The token of one is that of envd.
	boxes map[string]*box
}

func newE2BClient(c *client) *e2bClient { return &e2bClient{c, map[string]*box{}} }

// e2bHome is a directory that a sandbox has from the beginning.
const e2bHome = "/home/user"

// e2bTimeout is how long a sandbox is to live, and e2bNap after how long half of them are
// paused by themselves.
const (
	e2bTimeout = time.Hour
	e2bNap     = time.Second
)

func (c *e2bClient) act(ctx context.Context) {
	c.count++
	n := c.random.IntN(100)
	if len(c.held) == 0 {
		n %= 20 // without one it makes one, or looks around
	}
	switch {
	case n < 10:
		if len(c.held) < maxBoxes {
			if c.random.IntN(2) == 0 {
				c.create(ctx, e2bTimeout, false)
			} else {
				c.create(ctx, e2bNap, true)
			}
		}
	case n < 15:
		c.list(ctx)
	case n < 20:
		c.steal()
	case n < 32:
		c.command()
	case n < 42:
		c.start()
	case n < 51:
		c.execute()
	case n < 54:
		c.nap(ctx, c.box())
	case n < 63:
		c.write(ctx, c.box())
	case n < 72:
		c.read(c.box())
	case n < 76:
		c.look(c.box())
	case n < 80:
		c.renew(ctx, c.box())
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
func (c *e2bClient) box() *box { return c.boxes[c.held[c.random.IntN(len(c.held))]] }

// control is a request that the API key opens.
func (c *e2bClient) control(method, path string) call {
	return call{Method: method, Path: c.path(path), Header: map[string]string{"X-API-Key": tokenOf(c.tenant)}}
}

// inside is a request to envd or to the code interpreter, which the sandbox's token opens.
func (c *e2bClient) inside(b *box, method, path string) call {
	return call{Method: method, Path: c.path(path), Header: map[string]string{"E2b-Sandbox-Id": b.id, "X-Access-Token": b.token}}
}

// create makes a sandbox, by one of the two generations of the route. One that naps is
// paused at its timeout.
func (c *e2bClient) create(ctx context.Context, timeout time.Duration, naps bool) {
	e := event{Operation: opCreate, Key: c.key(), Path: e2bHome, Expires: time.Now().Add(timeout), Naps: naps}
	generation := []string{"", "/v2"}[c.random.IntN(2)]
	req := c.control(http.MethodPost, generation+"/sandboxes")
	req.body(map[string]any{
		"templateID": image, "timeout": int(timeout.Seconds()), "autoPause": naps, "secure": true, "metadata": map[string]string{"client": "chaos"},
	})
	if e.Key != "" {
		req.Header[keyHeader] = e.Key
	}
	token := ""
	e = c.again(ctx, e, e.Key != "", func(e event) event {
		return c.ask(e, req, func(e *event, a answer) { token = readE2BSandbox(e, a) })
	})
	if c.keep(e); e.answered() && e.Told != "" {
		c.boxes[e.Told] = &box{id: e.Told, token: token, expires: e.Expires, naps: naps, files: []written{{path: e2bHome}}}
	}
}

// readE2BSandbox reads a sandbox as create and connect answer it, or a refusal, and returns
// the token of envd.
func readE2BSandbox(e *event, a answer) string {
	var told struct{ SandboxID, EnvdAccessToken, TrafficAccessToken string }
	if readE2BRefusal(e, a); !e.answered() || !a.into(&told) {
		return ""
	}
	if e.Operation == opCreate {
		e.Told = told.SandboxID
	}
	e.Way = told.EnvdAccessToken + " " + told.TrafficAccessToken
	return told.EnvdAccessToken
}

// readE2BRefusal reads what is in the answer if that is one: in the form of the API, or in
// that of the Connect protocol, where the broker's code is behind the text.
func readE2BRefusal(e *event, a answer) {
	if e.answered() {
		return
	}
	var told struct{ Message string }
	if a.into(&told) {
		e.refusedBy(told.Message)
	}
	if e.Status == http.StatusBadGateway && e.Code == codeNotFound { // so the SDKs know a sandbox that has ended
		e.Status = http.StatusNotFound
	}
}

const codeNotFound = "SB013"

var codeBehind = regexp.MustCompile(`\((SB\d+)\)$`)

// refusedBy takes down the text of a refusal.
func (e *event) refusedBy(text string) {
	e.Detail = text
	if found := codeBehind.FindStringSubmatch(text); found != nil {
		e.Code = found[1]
	}
}

// look asks for a sandbox. An end that is later than the one that was promised is nobody's
// loss: a sandbox that is paused is kept longer.
func (c *e2bClient) look(b *box) event {
	return c.ask(event{Operation: opLook, Instance: b.id}, c.control(http.MethodGet, "/sandboxes/"+b.id), func(e *event, a answer) {
		var told struct {
			State string    `json:"state"`
			EndAt time.Time `json:"endAt"`
		}
		if readE2BRefusal(e, a); e.answered() && a.into(&told) {
			e.Paused = told.State == "paused"
			switch { // the end of one that naps is another one while it does
			case b.naps:
			case told.EndAt.Before(b.expires):
				e.Expires = told.EndAt
			default:
				e.Expires = b.expires
			}
		}
	})
}

// procedure is a call of envd by the Connect protocol, whose answer is a stream.
func (c *e2bClient) procedure(b *box, name string, message any) call {
	req := c.inside(b, http.MethodPost, name)
	req.body(message)
	req.Header["Content-Type"], req.Header["Connect-Protocol-Version"] = "application/connect+json", "1"
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(req.Body))) //nolint:gosec // it is small
	req.Body = append(head, req.Body...)
	return req
}

func startOf(code string) any {
	return map[string]any{"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-l", "-c", code}}, "stdin": false}
}

// command runs one and waits for its end.
func (c *e2bClient) command() {
	b := c.box()
	token, code := c.script()
	c.ask(event{Operation: opCommand, Instance: b.id, Token: token}, c.procedure(b, "/process.Process/Start", startOf(code)), readProcess)
}

// start starts one and leaves when it knows that it has begun.
func (c *e2bClient) start() {
	b := c.box()
	token, code := c.script()
	req := c.procedure(b, "/process.Process/Start", startOf(code))
	req.Until = []byte(`"pid":`)
	c.ask(event{Operation: opStart, Instance: b.id, Token: token}, req, readProcess)
}

// readProcess reads a stream of what a process does. It tells of success by its last
// message, and of a refusal by that too.
func readProcess(e *event, a answer) {
	if readE2BRefusal(e, a); !e.answered() {
		return
	}
	e.Outcome = "no last message"
	var printed bytes.Buffer
	for rest := a.Body; len(rest) >= 5; {
		size := int(binary.BigEndian.Uint32(rest[1:5]))
		if len(rest) < 5+size {
			break
		}
		var one struct {
			Event struct {
				Start *struct{}
				Data  struct{ Stdout []byte }
				End   *struct{ Exited bool }
			}
			Error *struct{ Code, Message string }
		}
		if json.Unmarshal(rest[5:5+size], &one) != nil {
			break
		}
		rest = rest[5+size:]
		printed.Write(one.Event.Data.Stdout)
		switch {
		case one.Error != nil:
			e.refusedBy(one.Error.Message)
			e.Status = statusOfConnect(one.Error.Code)
		case one.Event.Start != nil && e.Operation == opStart, one.Event.End != nil && one.Event.End.Exited:
			e.Outcome = ""
		case one.Event.End != nil:
			e.Outcome = "killed"
		}
	}
	e.Printed = strings.TrimSpace(printed.String())
}

// statusOfConnect is the status that a refusal has which is not the end of a stream.
func statusOfConnect(code string) int {
	switch code {
	case "not_found":
		return http.StatusNotFound
	case "unauthenticated":
		return http.StatusUnauthorized
	case "failed_precondition", "invalid_argument":
		return http.StatusBadRequest
	case "resource_exhausted":
		return http.StatusTooManyRequests
	case "unavailable":
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// execute runs code in the context of a language.
func (c *e2bClient) execute() {
	b := c.box()
	token, code := c.code()
	req := c.inside(b, http.MethodPost, "/execute")
	req.body(map[string]any{"code": code, "language": "python"})
	c.ask(event{Operation: opExecute, Instance: b.id, Token: token}, req, readCell)
}

// readCell reads what code does, a line each.
func readCell(e *event, a answer) {
	if readE2BRefusal(e, a); !e.answered() {
		return
	}
	e.Outcome = "no last line"
	failed := ""
	var printed strings.Builder
	for text := range bytes.Lines(a.Body) {
		var one struct{ Type, Text, Name, Value string }
		if json.Unmarshal(text, &one) != nil {
			continue
		}
		switch one.Type {
		case "stdout":
			printed.WriteString(one.Text)
		case "error":
			failed = one.Name + ": " + one.Value
		case "end_of_execution":
			e.Outcome = failed
		}
	}
	e.Printed = strings.TrimSpace(printed.String())
}

// write uploads a file, which gets no other content ever: in a form, as the SDKs do it, or
// as it is, as they do it with streams.
func (c *e2bClient) write(ctx context.Context, b *box) event {
	token := c.name("file")
	path := e2bHome + "/" + token
	req := c.inside(b, http.MethodPost, "/files?path="+url.QueryEscape(token)) // which begins at home
	req.Header["Content-Type"], req.Body = "application/octet-stream", []byte(token)
	if c.random.IntN(2) == 0 {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, err := form.CreateFormFile("file", token)
		if err == nil {
			_, err = part.Write([]byte(token))
		}
		if err != nil {
			panic(err) // a buffer takes all
		}
		_ = form.Close() // as above
		req.Header["Content-Type"], req.Body = form.FormDataContentType(), body.Bytes()
	}
	e := event{Operation: opWrite, Instance: b.id, Path: path, Token: token}
	b.files = append(b.files, written{path, token})
	return c.again(ctx, e, c.random.IntN(2) == 0, func(e event) event { return c.ask(e, req, readE2BRefusal) })
}

// read downloads a file that it has tried to write, or looks for the home.
func (c *e2bClient) read(b *box) { c.readFile(b, b.files[c.random.IntN(len(b.files))]) }

func (c *e2bClient) readFile(b *box, of written) event {
	e := event{Operation: opRead, Instance: b.id, Path: of.path, Token: of.token}
	if of.token == "" {
		req := c.inside(b, http.MethodPost, "/filesystem.Filesystem/Stat")
		req.body(map[string]any{"path": of.path})
		return c.ask(e, req, readE2BRefusal)
	}
	return c.ask(e, c.inside(b, http.MethodGet, "/files?path="+url.QueryEscape(of.path)), func(e *event, a answer) {
		if readE2BRefusal(e, a); e.answered() {
			e.Printed = strings.TrimSpace(string(a.Body))
		}
	})
}

// later draws a later end than ever before, and returns how many seconds it is away. One
// that naps does so soon.
func (c *e2bClient) later(b *box) int {
	if b.naps {
		b.expires = time.Now().Add(e2bNap)
		return int(e2bNap.Seconds())
	}
	b.expires = b.expires.Add(time.Duration(1+c.random.IntN(60)) * time.Second)
	return int(time.Until(b.expires).Seconds()) + 1
}

// nap waits until a sandbox that naps should do so, and has it go on: its files are there.
func (c *e2bClient) nap(ctx context.Context, b *box) {
	if !b.naps {
		return
	}
	pause(ctx, time.Until(b.expires))
	c.look(b)
	c.thaw(ctx, b)
	c.read(b)
}

// renew moves the end of a sandbox.
func (c *e2bClient) renew(ctx context.Context, b *box) event {
	req := c.control(http.MethodPost, "/sandboxes/"+b.id+"/timeout")
	req.body(map[string]any{"timeout": c.later(b)})
	return c.again(ctx, event{Operation: opRenew, Instance: b.id, Expires: b.expires}, true, func(e event) event {
		return c.ask(e, req, readE2BRefusal)
	})
}

// freeze pauses a sandbox, and lets it go on.
func (c *e2bClient) freeze(ctx context.Context) {
	b := c.box()
	// Of one that naps it is not certain yet that it does, where it is said to be paused already.
	c.again(ctx, event{Operation: opPause, Instance: b.id}, !b.naps && c.random.IntN(2) == 0, func(e event) event {
		return c.ask(e, c.control(http.MethodPost, "/sandboxes/"+b.id+"/pause"), func(e *event, a answer) {
			readE2BRefusal(e, a)
			if !b.naps && e.Status == http.StatusConflict && strings.Contains(e.Detail, "paused already") {
				e.Status = http.StatusNoContent // it was asked for before, and the SDKs take it for a success
			}
		})
	})
	if c.random.IntN(2) == 0 {
		c.command() // in this sandbox, or in another one
	}
	c.thaw(ctx, b)
}

// thaw connects to a sandbox, which resumes it if it is paused.
func (c *e2bClient) thaw(ctx context.Context, b *box) event {
	req := c.control(http.MethodPost, "/v2/sandboxes/"+b.id+"/connect")
	req.body(map[string]any{"timeout": c.later(b)})
	return c.again(ctx, event{Operation: opResume, Instance: b.id, Expires: b.expires}, true, func(e event) event {
		return c.ask(e, req, func(e *event, a answer) { readE2BSandbox(e, a) })
	})
}

// destroy asks until the sandbox is gone.
func (c *e2bClient) destroy(ctx context.Context) {
	at := c.random.IntN(len(c.held))
	id := c.held[at]
	c.held = append(c.held[:at], c.held[at+1:]...)
	delete(c.boxes, id)
	c.again(ctx, event{Operation: opDestroy, Instance: id}, true, func(e event) event {
		return c.ask(e, c.control(http.MethodDelete, "/sandboxes/"+id), readE2BRefusal)
	})
}

// list looks at all, and ends those that are nobody's.
func (c *e2bClient) list(ctx context.Context) {
	all := c.ask(event{Operation: opList}, c.control(http.MethodGet, "/v2/sandboxes?state=running,paused&metadata=client%3Dchaos"), func(e *event, a answer) {
		var told []struct{ SandboxID string }
		if readE2BRefusal(e, a); e.answered() && a.into(&told) {
			for _, one := range told {
				e.List = append(e.List, one.SandboxID)
			}
		}
	})
	for _, id := range c.seen.nobodys(all.List) {
		c.again(ctx, event{Operation: opDestroy, Instance: id}, false, func(e event) event {
			return c.ask(e, c.control(http.MethodDelete, "/sandboxes/"+id), readE2BRefusal)
		})
	}
}

// steal reaches for what belongs to somebody else.
func (c *e2bClient) steal() {
	id := c.seen.ofOthers(c.tenant, c.door, c.random)
	if id == "" {
		return
	}
	b := &box{id: id, token: tokenOf(c.tenant)}
	if len(c.held) > 0 && c.random.IntN(2) == 0 {
		b.token = c.box().token // that of another sandbox
	}
	_, code := c.script()
	ways := map[string]call{
		"look":    c.control(http.MethodGet, "/sandboxes/"+id),
		"kill":    c.control(http.MethodDelete, "/sandboxes/"+id),
		"connect": c.control(http.MethodPost, "/v2/sandboxes/"+id+"/connect"),
		"pause":   c.control(http.MethodPost, "/sandboxes/"+id+"/pause"),
		"read":    c.inside(b, http.MethodGet, "/files?path="+e2bHome),
		"run":     c.procedure(b, "/process.Process/Start", startOf(code)),
	}
	way := slices.Sorted(maps.Keys(ways))[c.random.IntN(len(ways))]
	c.ask(event{Operation: opSteal, Instance: id}, ways[way], readProcess)
}
