package chaos_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpClient does what the host of an assistant does with the tools, by the SDK that is
// published for hosts. It names its sessions itself, and asks for one of the same name
// again when that has ended.
type mcpClient struct {
	*client
	// boxes are the sessions that it has, and names what they are called, by the names of
	// their instances.
	boxes map[string]*box
	names map[string]string

	// connected is nil while it has no connection, and wire what carries it.
	connected *mcp.ClientSession
	wire      *wire
}

func newMCPClient(c *client) *mcpClient {
	return &mcpClient{client: c, boxes: map[string]*box{}, names: map[string]string{}}
}

// mcpPatience is how long a call may take: longer than anything that the broker waits for.
// One without an answer by then is a finding.
const mcpPatience = time.Minute

// versionOfSessions is the last version of the protocol in which a call is cancelled by
// another request; since then it is by closing the stream.
const versionOfSessions = "2025-11-25"

func (c *mcpClient) act(ctx context.Context) {
	c.count++
	n := c.random.IntN(100)
	if len(c.held) == 0 {
		n %= 35 // without a session it begins one, or does what needs none
	}
	switch {
	case n < 12:
		c.begin(ctx)
	case n < 16:
		c.list()
	case n < 20:
		c.steal()
	case n < 27:
		c.leave()
	case n < 32:
		c.run("")
	case n < 35:
		c.disconnect()
	case n < 50:
		c.run(c.names[c.box().id])
	case n < 60:
		c.command()
	case n < 66:
		c.start()
	case n < 72:
		c.follow()
	case n < 75:
		c.stop()
	case n < 83:
		c.write(ctx)
	case n < 91:
		c.read()
	case n < 96:
		c.destroy(ctx)
	default:
		pause(ctx, time.Duration(c.random.IntN(30))*time.Millisecond)
	}
}

// box draws one of those that it has.
func (c *mcpClient) box() *box { return c.boxes[c.held[c.random.IntN(len(c.held))]] }

// sessionOf is the name of a session of a client of this door. Those of all have others.
func sessionOf(number, n int) string { return fmt.Sprintf("mcp-%d-%d", number, n) }

// connect connects, by either of two versions of the protocol.
func (c *mcpClient) connect() event {
	c.wire = newWire(tokenOf(c.tenant))
	transport := &mcp.StreamableClientTransport{
		Endpoint: "http://" + c.world.address + c.path(""), HTTPClient: &http.Client{Transport: c.wire}, MaxRetries: -1,
	}
	options := &mcp.ClientSessionOptions{}
	if c.random.IntN(2) == 0 {
		options.ProtocolVersion = versionOfSessions
	}
	return c.record(event{Operation: opConnect}, func(ctx context.Context, e *event) (err error) {
		c.connected, err = mcp.NewClient(&mcp.Implementation{Name: "chaos", Version: "1"}, nil).Connect(ctx, transport, options)
		if err != nil {
			c.connected = nil
			c.wire.cut()
			return err
		}
		e.Status = http.StatusOK
		return nil
	})
}

// disconnect ends the connection, if there is one. Sessions of the broker stay.
func (c *mcpClient) disconnect() {
	if c.connected == nil {
		return
	}
	_ = c.connected.Close() // the broker may be dead
	c.wire.cut()
	c.connected = nil
}

// record sends what send sends, and writes down what became of it.
func (c *mcpClient) record(e event, send func(ctx context.Context, e *event) error) event {
	e.Client, e.Tenant, e.Door, e.Began = c.number, c.tenant, c.door, time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), max(mcpPatience, c.world.pace.ask))
	defer cancel()
	ctx, last := c.wire.watch(ctx)
	var left atomic.Bool
	cuts := e.Patience > 0 && c.random.IntN(2) == 0
	if e.Patience > 0 {
		away := cancel
		if cuts {
			away = c.wire.cut
		}
		timer := time.AfterFunc(e.Patience, func() {
			left.Store(true)
			away()
		})
		defer timer.Stop()
	}
	err := send(ctx, &e)
	e.Ended = time.Now()
	switch {
	case err == nil:
	case left.Load():
		e.Error = err.Error()
	default:
		last.read(&e, err)
	}
	c.world.history.add(e)
	if e.Error != "" && (cuts || !left.Load()) { // who cancels a call goes on with the next one
		c.disconnect()
	}
	return e
}

// read finds in the last exchange of a call what its error is: a refusal of the request, of
// the message, or of the connection. No answer at all is taken for a refusal without a code.
func (x *exchange) read(e *event, err error) {
	status, body, broke := x.told()
	var refused *jsonrpc.Error
	switch {
	case status >= http.StatusBadRequest:
		var told struct {
			Error struct {
				Message string
				Data    struct{ Code string }
			}
		}
		_ = json.Unmarshal(body, &told) // what is in another form has no code
		e.Status, e.Code, e.Detail = status, told.Error.Data.Code, told.Error.Message
	case broke != nil && (status == 0 || !errors.Is(broke, io.EOF)) && !errors.Is(broke, context.DeadlineExceeded):
		e.Error = broke.Error()
	case status == 0 && broke == nil && errors.Is(err, mcp.ErrConnectionClosed): // it was not sent
		e.Error = err.Error()
	case status == http.StatusOK && errors.As(err, &refused): // what the SDK itself says has that type, too
		e.Status, e.Detail = http.StatusInternalServerError, refused.Error()
	default:
		e.Status, e.Detail = http.StatusGatewayTimeout, "no answer: "+err.Error()
	}
}

// call calls a tool. What it answers is that of the broker's own API, in which instances
// have the names that they have for a door; read reads what is in there besides.
func (c *mcpClient) call(e event, tool string, arguments map[string]any, read func(e *event, a answer)) event {
	if c.connected == nil {
		if did := c.connect(); !did.answered() { // so that nothing was asked for
			e.Status, e.Code, e.Detail, e.Error = did.Status, did.Code, did.Detail, did.Error
			pause(context.Background(), betweenTries)
			return e
		}
	}
	return c.record(e, func(ctx context.Context, e *event) error {
		result, err := c.connected.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			return err
		}
		a := answer{Status: http.StatusOK}
		a.Body, _ = json.Marshal(result.StructuredContent) // it was JSON
		e.Status = http.StatusOK
		if result.IsError {
			var told struct{ Status int }
			a.into(&told)
			a.Status = max(told.Status, http.StatusBadRequest)
			e.Status = a.Status
		}
		readOwn(e, a)
		if e.Code == "" && result.IsError {
			e.Detail = textOf(result)
		}
		e.Told = lastPart(e.Told)
		for i, id := range e.List {
			e.List[i] = lastPart(id)
		}
		if e.answered() && read != nil {
			read(e, a)
		}
		return nil
	})
}

// textOf is all text of an answer.
func textOf(result *mcp.CallToolResult) string {
	var all strings.Builder
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			all.WriteString(text.Text)
		}
	}
	return all.String()
}

// begin begins a session, or finds it.
func (c *mcpClient) begin(ctx context.Context) {
	e := event{Operation: opCreate, Session: sessionOf(c.number, c.random.IntN(maxBoxes))}
	c.take(c.again(ctx, e, true, func(e event) event {
		return c.call(e, "create_session", map[string]any{"session": e.Session}, nil)
	}))
}

// take takes down the instance that a session has.
func (c *mcpClient) take(e event) {
	if c.keep(e); !e.answered() || e.Told == "" || c.boxes[e.Told] != nil {
		return
	}
	c.boxes[e.Told], c.names[e.Told] = &box{id: e.Told}, e.Session
}

// run runs code: in a session, with variables that stay or without, or in a fresh sandbox.
func (c *mcpClient) run(session string) {
	token, code := c.code()
	arguments := map[string]any{"language": "python", "code": code}
	if session != "" {
		arguments["session"] = session
		if c.random.IntN(2) == 0 {
			arguments["context"] = "default"
		}
	}
	e := c.call(event{Operation: opRun, Session: session, Token: token}, "run_code", arguments, nil)
	if session != "" {
		c.take(e)
	}
}

// leave runs code that takes longer than anything is waited for here, and goes away: by
// cancelling the call, or by losing the connection. What goes on then takes a slot that is
// missed when all is quiet.
func (c *mcpClient) leave() {
	token, code := c.program(2 * leakBound)
	e := event{Operation: opRun, Token: token, Patience: time.Duration(1+c.random.IntN(80)) * time.Millisecond}
	arguments := map[string]any{"language": "python", "code": code, "timeout": (2 * leakBound).Seconds()}
	if len(c.held) > 0 && c.random.IntN(2) == 0 {
		b := c.box()
		e.Session = c.names[b.id]
		arguments["session"] = e.Session
	}
	c.call(e, "run_code", arguments, nil)
}

// readCommand reads a command with its output.
func readCommand(e *event, a answer) {
	var told struct{ ID, State, Stdout string }
	if e.Told = ""; !a.into(&told) { // it is no instance
		e.Outcome = "no command"
		return
	}
	e.Command, e.Printed = told.ID, strings.TrimSpace(told.Stdout)
	if e.Operation == opCommand && told.State != "succeeded" {
		e.Outcome = told.State
	}
}

// command runs one and waits for its end.
func (c *mcpClient) command() {
	b := c.box()
	token, code := c.script()
	c.call(event{Operation: opCommand, Instance: b.id, Token: token}, "run_command",
		map[string]any{"session": c.names[b.id], "command": code}, readCommand)
}

// start starts one in the background.
func (c *mcpClient) start() {
	b := c.box()
	token, code := c.script()
	e := c.call(event{Operation: opStart, Instance: b.id, Token: token}, "run_command",
		map[string]any{"session": c.names[b.id], "command": code, "background": true}, readCommand)
	if e.answered() && e.Command != "" {
		b.commands = append(b.commands, started{e.Command, token})
	}
}

// follow reads what one that was started has printed, at once or at its end.
func (c *mcpClient) follow() {
	c.ofCommand(opFollow, "command_output", map[string]any{"wait": c.random.IntN(2)})
}

// stop stops one that was started.
func (c *mcpClient) stop() { c.ofCommand(opStop, "stop_command", map[string]any{}) }

func (c *mcpClient) ofCommand(operation operation, tool string, arguments map[string]any) {
	b := c.box()
	if len(b.commands) == 0 {
		return
	}
	of := b.commands[c.random.IntN(len(b.commands))]
	arguments["session"], arguments["command"] = c.names[b.id], of.id
	c.call(event{Operation: operation, Instance: b.id, Command: of.id, Token: of.token}, tool, arguments, readCommand)
}

// write writes a file, which gets no other content ever.
func (c *mcpClient) write(ctx context.Context) {
	b := c.box()
	token := c.name("file")
	path := "/workspace/" + token
	arguments := map[string]any{"session": c.names[b.id], "path": path, "content": token}
	if c.random.IntN(2) == 0 {
		arguments["content"], arguments["base64"] = base64.StdEncoding.EncodeToString([]byte(token)), true
	}
	e := event{Operation: opWrite, Instance: b.id, Path: path, Token: token}
	c.again(ctx, e, c.random.IntN(2) == 0, func(e event) event { return c.call(e, "write_file", arguments, nil) })
	b.files = append(b.files, written{path, token})
}

// read reads a file that it has tried to write.
func (c *mcpClient) read() {
	b := c.box()
	if len(b.files) == 0 {
		return
	}
	of := b.files[c.random.IntN(len(b.files))]
	c.call(event{Operation: opRead, Instance: b.id, Path: of.path, Token: of.token}, "read_file",
		map[string]any{"session": c.names[b.id], "path": of.path}, func(e *event, a answer) {
			var told struct{ Content string }
			a.into(&told)
			e.Printed = told.Content
		})
}

// list looks at all sessions, and says which instance each has. Those that nobody was told
// of have names, by which their client asks for them again.
func (c *mcpClient) list() (listed event, instances map[string]string) {
	instances = map[string]string{}
	listed = c.call(event{Operation: opList}, "list_sessions", map[string]any{}, func(_ *event, a answer) {
		var told struct {
			Instances []struct {
				ID        string
				SessionID string `json:"session_id"`
			}
		}
		a.into(&told)
		for _, one := range told.Instances {
			instances[one.SessionID] = lastPart(one.ID)
		}
	})
	return listed, instances
}

// destroy ends a session, and asks until it has ended. Which instance that has is looked up
// before: tools that are told its name begin it anew where others have ended it.
func (c *mcpClient) destroy(ctx context.Context) {
	at := c.random.IntN(len(c.held))
	id := c.held[at]
	name := c.names[id]
	listed, instances := c.list()
	if !listed.answered() {
		return
	}
	c.held = append(c.held[:at], c.held[at+1:]...)
	delete(c.boxes, id)
	delete(c.names, id)
	if has := instances[name]; has != "" {
		id = has
	}
	// That there was no such session is an acknowledgement, too.
	c.again(ctx, event{Operation: opDestroy, Instance: id}, true, func(e event) event {
		return c.call(e, "end_session", map[string]any{"session": name}, nil)
	})
}

// steal reaches for a session of another tenant, by its name.
func (c *mcpClient) steal() {
	first := c.number - c.number%len(tenants)
	other := first + (c.number-first+1+c.random.IntN(len(tenants)-1))%len(tenants)
	name := sessionOf(other, c.random.IntN(maxBoxes))
	arguments := map[string]any{"session": name}
	e := event{Operation: opSteal, Instance: name}
	switch c.random.IntN(4) {
	case 0:
		arguments["path"] = "/workspace"
		c.call(e, "read_file", arguments, nil)
	case 1:
		arguments["command"] = "command-1"
		c.call(e, "command_output", arguments, nil)
	case 2:
		arguments["command"] = "command-1"
		c.call(e, "stop_command", arguments, nil)
	default:
		c.call(e, "end_session", arguments, func(e *event, a answer) {
			var told struct{ Ended bool }
			if a.into(&told) && !told.Ended {
				e.Status, e.Code = http.StatusNotFound, codeNotFound
			}
		})
	}
}
