package daytonafake_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
)

// dial opens a WebSocket.
func dial(t *testing.T, url string, headers http.Header) *websocket.Conn {
	t.Helper()
	if headers == nil {
		headers = http.Header{"Authorization": {"Bearer " + daytonafake.DefaultAPIKey}}
	}
	conn, resp, err := websocket.Dial(t.Context(), strings.Replace(url, "http", "ws", 1), &websocket.DialOptions{HTTPHeader: headers})
	assert.NilError(t, err)
	if resp.Body != nil {
		resp.Body.Close()
	}
	t.Cleanup(func() { conn.CloseNow() })
	return conn
}

// heard reads messages until the connection closes.
func heard(t *testing.T, conn *websocket.Conn) (messages []string, code websocket.StatusCode, reason string) {
	t.Helper()
	for {
		_, message, err := conn.Read(t.Context())
		if err != nil {
			var closed websocket.CloseError
			assert.Assert(t, errors.As(err, &closed), "%v", err)
			return messages, closed.Code, closed.Reason
		}
		messages = append(messages, string(message))
	}
}

func TestSessionsSplitByTheVersionOfTheClient(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	_, toolbox := create(t, s, `{}`)
	assert.Equal(t, ask(t, http.MethodPost, toolbox+"/process/session", `{"sessionId":"s"}`).status, 201)
	const (
		plain  = "b\na\n"
		marked = "\x02\x02\x02b\n\x01\x01\x01a\n"
	)
	for name, test := range map[string]struct {
		header, output string
		stdout         any
		kind           string
	}{
		"nothing":               {"X: y", plain, nil, "text/plain"},
		"the splitting alone":   {"X-Daytona-Split-Output: true", marked, nil, "text/plain"},
		"before it":             {"X-Daytona-SDK-Version: 0.26.9", plain, nil, "text/plain"},
		"with markers":          {"X-Daytona-SDK-Version: 0.27.0", marked, nil, "text/plain"},
		"the last with markers": {"X-Daytona-SDK-Version: 0.166.3", marked, nil, "text/plain"},
		"apart":                 {"X-Daytona-SDK-Version: 0.167.0", marked, "a\n", "application/json"},
		"the newest":            {"X-Daytona-SDK-Version: 0.218.0", marked, "a\n", "application/json"},
		"one of a developer":    {"X-Daytona-SDK-Version: v0.0.0-dev", marked, "a\n", "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			o := ask(t, http.MethodPost, toolbox+"/process/session/s/exec", `{"command":"echo a; echo b >&2"}`, test.header).object(t)
			assert.Equal(t, o["output"], test.output)
			assert.Equal(t, o["stdout"], test.stdout)
			logs := ask(t, http.MethodGet, toolbox+"/process/session/s/command/"+o["cmdId"].(string)+"/logs", "", test.header)
			assert.Check(t, strings.HasPrefix(logs.header.Get("Content-Type"), test.kind))
			if test.kind == "text/plain" {
				assert.Equal(t, logs.text, test.output)
			} else {
				assert.Equal(t, logs.object(t)["stderr"], "b\n")
			}
		})
	}
	t.Run("followed", func(t *testing.T) {
		o := ask(t, http.MethodPost, toolbox+"/process/session/s/exec", `{"command":"echo a; read x; echo $x >&2","runAsync":true}`)
		assert.Equal(t, o.status, 202)
		command := toolbox + "/process/session/s/command/" + o.object(t)["cmdId"].(string)
		conn := dial(t, command+"/logs?follow=true", nil)
		_, first, err := conn.Read(t.Context())
		assert.NilError(t, err)
		assert.Equal(t, string(first), "\x01\x01\x01a\n")
		assert.Equal(t, ask(t, http.MethodPost, command+"/input", `{"data":"b\n"}`).status, 204)
		messages, code, _ := heard(t, conn)
		assert.Equal(t, strings.Join(messages, ""), "\x02\x02\x02b\n")
		assert.Equal(t, code, websocket.StatusNormalClosure)
		assert.Equal(t, ask(t, http.MethodPost, command+"/input", `{"data":"b\n"}`).status, 410)
	})
}

func TestACommandThatEndsTheShellOfItsSessionHangs(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	_, toolbox := create(t, s, `{}`)
	assert.Equal(t, ask(t, http.MethodPost, toolbox+"/process/session", `{"sessionId":"s"}`).status, 201)
	done := make(chan reply, 1)
	go func() {
		r, _ := send(t.Context(), http.MethodPost, toolbox+"/process/session/s/exec", `{"command":"exit 7"}`) // no answer has no status
		done <- r
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Contains(ask(t, http.MethodPost, toolbox+"/process/session/s/exec", `{"command":"true","runAsync":true}`).text, "broken pipe"))
	}, poll.WithTimeout(2*time.Minute))
	select {
	case r := <-done:
		t.Fatal("it is answered: ", r.text)
	default:
	}
	for _, one := range ask(t, http.MethodGet, toolbox+"/process/session/s", "").object(t)["commands"].([]any) {
		command := one.(map[string]any)
		if _, ended := command["exitCode"]; command["command"] == "exit 7" {
			assert.Check(t, !ended)
		}
	}
	assert.Equal(t, ask(t, http.MethodDelete, toolbox+"/process/session/s", "").status, 204)
	assert.Equal(t, (<-done).status, 410)
}

func TestACommandIsKilledWithItsGroup(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	_, toolbox := create(t, s, `{}`)
	began := time.Now()
	r := ask(t, http.MethodPost, toolbox+"/process/execute", `{"command":"echo $$ >/tmp/pid; sleep 1000 & sleep 1000","timeout":1}`)
	assert.Equal(t, r.status, 408)
	assert.Equal(t, r.object(t)["code"], "REQUEST_TIMEOUT")
	assert.Check(t, time.Since(began) >= time.Second)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Equal(run(t, toolbox, "pgrep -c sleep"), "0\n"))
	}, poll.WithTimeout(2*time.Minute))
}

func TestInterpreterChunks(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	_, toolbox := create(t, s, `{}`)
	interpret := func(request string) ([]string, websocket.StatusCode) {
		conn := dial(t, toolbox+"/process/interpreter/execute", nil)
		assert.NilError(t, conn.Write(t.Context(), websocket.MessageText, []byte(request)))
		messages, code, _ := heard(t, conn)
		return messages, code
	}
	const completed = `{"type":"control","text":"completed","name":"","value":"","traceback":""}`
	for name, test := range map[string]struct {
		request string
		want    []string
		code    websocket.StatusCode
	}{
		"output":           {`{"code":"print('a', end='')"}`, []string{`{"type":"stdout","text":"a","name":"","value":"","traceback":""}`, completed}, 1000},
		"no last value":    {`{"code":"1+1"}`, []string{completed}, 1000},
		"the end":          {`{"code":"raise SystemExit(3)"}`, []string{completed}, 1000},
		"too long":         {`{"code":"while True: pass","timeout":1}`, []string{strings.Replace(completed, "completed", "interrupted", 1)}, 4008},
		"no code":          {`{"code":""}`, nil, 1008},
		"an unknown part":  {`{"code":"1","language":"python"}`, nil, 1008},
		"no such context":  {`{"code":"1","contextId":"x"}`, nil, 1008},
		"a sudden end":     {`{"code":"import os; os._exit(1)"}`, nil, 1011},
		"one time of none": {`{"code":"1","timeout":0}`, []string{completed}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			messages, code := interpret(test.request)
			assert.DeepEqual(t, messages, test.want)
			assert.Equal(t, code, test.code)
		})
	}
	t.Run("an exception", func(t *testing.T) {
		messages, _ := interpret(`{"code":"1/0"}`)
		assert.Equal(t, len(messages), 2)
		var chunk map[string]string
		assert.NilError(t, json.Unmarshal([]byte(messages[0]), &chunk))
		assert.Equal(t, chunk["name"], "ZeroDivisionError")
		assert.Equal(t, chunk["value"], "division by zero")
	})
}

func TestTerminalsOfTheOldDaemon(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	_, toolbox := create(t, s, `{}`)
	made := ask(t, http.MethodPost, toolbox+"/process/pty", `{"id":"t","cols":90,"rows":20,"envs":{"X":"y"}}`)
	assert.Equal(t, made.status, 201)
	assert.Equal(t, made.object(t)["sessionId"], "t")
	assert.Equal(t, ask(t, http.MethodPost, toolbox+"/process/pty", `{"id":"t"}`).status, 409)
	conn := dial(t, toolbox+"/process/pty/t/connect", nil)
	assert.NilError(t, conn.Write(t.Context(), websocket.MessageBinary, []byte("echo \"[$X $(stty size)]\"; exit 5\n")))
	messages, code, reason := heard(t, conn)
	assert.Equal(t, messages[0], `{"status":"connected","type":"control"}`)
	assert.Check(t, is.Contains(strings.Join(messages, ""), "[y 20 90]"))
	assert.Equal(t, code, websocket.StatusNormalClosure)
	assert.Equal(t, reason, `{"exitCode":5,"exitReason":"exit status 5"}`)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Equal(ask(t, http.MethodGet, toolbox+"/process/pty/t", "").status, 404))
	}, poll.WithTimeout(2*time.Minute))
	messages, _, _ = heard(t, dial(t, toolbox+"/process/pty/t/connect", nil))
	assert.DeepEqual(t, messages, []string{`{"error":"PTY session not found","status":"error","type":"control"}`})
}

// webSocketServer greets whoever upgrades.
const webSocketServer = `
const crypto = require("crypto");
require("http").createServer().on("upgrade", (request, socket) => {
  const accept = crypto.createHash("sha1").update(request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + "\r\n\r\n");
  socket.end(Buffer.from([0x81, 5, 104, 101, 108, 108, 111, 0x88, 2, 0x03, 0xe8]));
}).listen(8000, "127.0.0.1", () => require("fs").writeFileSync("/tmp/listens", ""));
`

func TestPreviewsPassWebSockets(t *testing.T) {
	s := cloud(t, daytonafake.Options{})
	id, toolbox := create(t, s, `{}`)
	assert.Equal(t, upload(t, toolbox, "files[0].path", "/tmp/server.js", "files[0].file", webSocketServer).status, 200)
	run(t, toolbox, "node /tmp/server.js >/dev/null 2>&1 & until test -e /tmp/listens; do :; done")
	assert.Equal(t, ask(t, http.MethodGet, toolbox+"/port", "").object(t)["ports"].([]any)[0], 8000.0)
	link := ask(t, http.MethodGet, s.APIURL+"/sandbox/"+id+"/ports/8000/preview-url", "").object(t)
	conn := dial(t, link["url"].(string), http.Header{"X-Daytona-Preview-Token": {link["token"].(string)}, "X-Daytona-Skip-Preview-Warning": {"true"}})
	messages, code, _ := heard(t, conn)
	assert.DeepEqual(t, messages, []string{"hello"})
	assert.Equal(t, code, websocket.StatusNormalClosure)
	assert.Equal(t, s.Calls("GET /preview/"+id+"/8000/"), 1)

	s.Inject(daytonafake.Fault{On: "GET /preview/*/8000/x", Times: 1, Reset: true})
	assert.Check(t, try(context.Background(), http.MethodGet, link["url"].(string)+"/x") != nil)
}
