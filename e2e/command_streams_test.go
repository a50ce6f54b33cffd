package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// commandStream is a stream of events that is read while it comes.
type commandStream struct {
	t      *testing.T
	resp   *http.Response
	events *sse.Reader
}

func (i commandInstance) events(ctx context.Context, method, path string, body any) commandStream {
	i.t.Helper()
	encoded, err := json.Marshal(body)
	assert.NilError(i.t, err)
	if body == nil {
		encoded = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, i.URL+i.path+path, bytes.NewReader(encoded))
	assert.NilError(i.t, err)
	req.Header.Set("Authorization", "Bearer "+harness.Token)
	req.Header.Set("Accept", "text/event-stream")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	assert.NilError(i.t, err)
	i.t.Cleanup(func() { _ = resp.Body.Close() })
	return commandStream{i.t, resp, sse.NewReader(resp.Body, 1<<20)}
}

// next reads an event of a given name.
func (s commandStream) next(name string, into any) {
	s.t.Helper()
	e, err := s.events.Next()
	assert.NilError(s.t, err)
	assert.Equal(s.t, e.Name, name, "%s", e.Data)
	assert.NilError(s.t, json.Unmarshal(e.Data, into))
}

// rest reads the stream to its end.
func (s commandStream) rest() (stdout, stderr string, done command) {
	s.t.Helper()
	var out [2]strings.Builder
	var at [2]int64
	for {
		e, err := s.events.Next()
		assert.NilError(s.t, err)
		var part client.CommandOutputPart
		stream := 0
		switch e.Name {
		case client.EventDone:
			assert.NilError(s.t, json.Unmarshal(e.Data, &done))
			return out[0].String(), out[1].String(), done
		case client.EventStderr:
			stream = 1
		default:
			assert.Equal(s.t, e.Name, client.EventStdout, "%s", e.Data)
		}
		assert.NilError(s.t, json.Unmarshal(e.Data, &part))
		if out[stream].Len() > 0 {
			assert.Equal(s.t, part.Offset, at[stream])
		}
		piece := part.Text + string(part.Base64)
		at[stream] = part.Offset + int64(len(piece))
		out[stream].WriteString(piece)
	}
}

func TestCommandsStream(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, testCommandsStream)
}

func testCommandsStream(t *testing.T, b *harness.Broker) {
	i := newCommandInstance(t, b)
	t.Run("output comes while it happens", func(t *testing.T) {
		s := i.events(t.Context(), http.MethodPost, "", map[string]any{"stdin": true, "command": "echo one; read -r x; echo two >&2; printf '\\303'; sleep 0.1; printf '\\251\\377'; exit 3"})
		var started command
		s.next(client.EventStarted, &started)
		assert.Equal(t, started.State, "running")
		var part client.CommandOutputPart
		s.next(client.EventStdout, &part)
		assert.Equal(t, part.Text, "one\n")
		assert.Equal(t, i.post("/"+started.ID+"/stdin", []byte("go\n")).Status, http.StatusNoContent)
		stdout, stderr, done := s.rest()
		assert.Equal(t, stdout, "\u00e9\xff")
		assert.Equal(t, stderr, "two\n")
		assert.Equal(t, done.State, "failed")
		assert.Equal(t, *done.ExitCode, 3)
	})
	t.Run("logs can be followed, by several", func(t *testing.T) {
		c := i.start(http.StatusCreated, map[string]any{"command": "seq 1 50000; cat; echo bye >&2", "stdin": true, "background": true})
		first := i.events(t.Context(), http.MethodGet, "/"+c.ID+"/logs?follow=true", nil)
		second := i.events(t.Context(), http.MethodGet, "/"+c.ID+"/logs?follow=true", nil)
		var started command
		first.next(client.EventStarted, &started)
		second.next(client.EventStarted, &started)
		assert.Equal(t, i.post("/"+c.ID+"/stdin?end=true", []byte("end\n")).Status, http.StatusNoContent)
		for _, s := range []commandStream{first, second} {
			stdout, stderr, done := s.rest()
			assert.Equal(t, len(stdout), 288894+4)
			assert.Assert(t, strings.HasSuffix(stdout, "\n50000\nend\n"))
			assert.Equal(t, stderr, "bye\n")
			assert.Equal(t, done.State, "succeeded")
		}
		again := i.events(t.Context(), http.MethodGet, "/"+c.ID+"/logs?stdout_offset=288894", nil)
		again.next(client.EventStarted, &started)
		stdout, _, _ := again.rest()
		assert.Equal(t, stdout, "end\n")
	})
	t.Run("who leaves a command in the foreground ends it", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		s := i.events(ctx, http.MethodPost, "", map[string]any{"command": "trap '' TERM HUP INT; (setsid sleep 1000 &); sleep 1000"})
		var started command
		s.next(client.EventStarted, &started)
		leave()
		assert.Equal(t, i.wait(started.ID).State, "cancelled")
	})
	t.Run("who leaves logs ends nothing", func(t *testing.T) {
		c := i.start(http.StatusCreated, map[string]any{"command": "echo here; exec sleep 1000", "background": true})
		ctx, leave := context.WithCancel(t.Context())
		s := i.events(ctx, http.MethodGet, "/"+c.ID+"/logs?follow=true", nil)
		var started command
		s.next(client.EventStarted, &started)
		leave()
		var part client.CommandOutputPart
		s = i.events(t.Context(), http.MethodGet, "/"+c.ID+"/logs?follow=true", nil)
		s.next(client.EventStarted, &started)
		s.next(client.EventStdout, &part)
		assert.Equal(t, i.Do(http.MethodDelete, i.path+"/"+c.ID, harness.Token, nil).Status, http.StatusNoContent)
		_, _, done := s.rest()
		assert.Equal(t, done.State, "cancelled")
	})
	t.Run("what fails at the start is no stream", func(t *testing.T) {
		for path, code := range map[string]int{"": http.StatusUnprocessableEntity, "/c-99/logs": http.StatusNotFound} {
			method, body := http.MethodGet, any(nil)
			if path == "" {
				method, body = http.MethodPost, map[string]any{"argv": []string{"no-such-program"}}
			}
			s := i.events(t.Context(), method, path, body)
			assert.Check(t, is.Equal(s.resp.StatusCode, code))
			assert.Check(t, is.Equal(s.resp.Header.Get("Content-Type"), "application/problem+json"))
		}
	})
	t.Run("the end of the instance is told", func(t *testing.T) {
		other := newCommandInstance(t, b)
		c := other.start(http.StatusCreated, map[string]any{"argv": []string{"sleep", "1000"}, "background": true})
		s := other.events(t.Context(), http.MethodGet, "/"+c.ID+"/logs?follow=true", nil)
		var started command
		s.next(client.EventStarted, &started)
		assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/instances/"+other.id, harness.Token, nil).Status, http.StatusNoContent)
		var p harness.Problem
		s.next(client.EventError, &p)
		assert.Check(t, p.Code == "SB013" || p.Code == "SB009", "%+v", p)
	})
}

// A reader that does not read costs the broker nothing, and the command no time.
func TestAReaderThatDoesNotReadDelaysNobody(t *testing.T) {
	t.Parallel()
	b := real.Broker(t)
	i := newCommandInstance(t, b)
	c := i.start(http.StatusCreated, map[string]any{"command": "read -r go; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo end", "stdin": true, "background": true})
	slow := i.events(t.Context(), http.MethodGet, "/"+c.ID+"/logs?follow=true", nil)
	var started command
	slow.next(client.EventStarted, &started)
	assert.Equal(t, i.post("/"+c.ID+"/stdin", []byte("go\n")).Status, http.StatusNoContent)
	assert.Equal(t, i.wait(c.ID).State, "succeeded", "although nobody reads")
	received, lost, next := int64(0), int64(0), int64(0)
	var last string
	for {
		e, err := slow.events.Next()
		assert.NilError(t, err)
		if e.Name == client.EventDone {
			break
		}
		var part client.CommandOutputPart
		assert.NilError(t, json.Unmarshal(e.Data, &part))
		lost += part.Offset - next
		received += int64(len(part.Text))
		next = part.Offset + int64(len(part.Text))
		last = part.Text
	}
	assert.Check(t, is.Equal(received+lost, int64(50000005)))
	assert.Check(t, lost > 0)
	assert.Check(t, strings.HasSuffix(last, "x\nend\n"))
}

func TestTerminalsOverWebSocket(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, testTerminalsOverWebSocket)
}

func testTerminalsOverWebSocket(t *testing.T, b *harness.Broker) {
	i := newCommandInstance(t, b)
	shell := map[string]any{
		"argv": []string{"bash", "--norc", "--noediting", "-i"}, "terminal": map[string]int{"rows": 24, "columns": 80}, "background": true,
		"env": map[string]string{"PS1": "> "},
	}
	dial, token := i.dial, bearer()
	// shows reads until a text was shown.
	shows := func(t *testing.T, conn *websocket.Conn, text string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		var seen bytes.Buffer
		for !bytes.Contains(seen.Bytes(), []byte(text)) {
			kind, frame, err := conn.Read(ctx)
			assert.NilError(t, err, "no %q in %q", text, seen.String())
			assert.Equal(t, kind, websocket.MessageBinary)
			seen.Write(frame)
		}
	}
	types := func(t *testing.T, conn *websocket.Conn, text string) {
		t.Helper()
		assert.NilError(t, conn.Write(t.Context(), websocket.MessageBinary, []byte(text)))
	}

	t.Run("a shell", func(t *testing.T) {
		c := i.start(http.StatusCreated, shell)
		conn, answer, err := dial(t, c.ID, token)
		assert.NilError(t, err)
		defer conn.CloseNow()
		assert.Check(t, answer.Header.Get("X-Request-Id") != "")
		types(t, conn, "stty size; echo re\"ady\"\n")
		shows(t, conn, "24 80\r\nready\r\n")
		assert.NilError(t, conn.Write(t.Context(), websocket.MessageText, []byte(`{"resize": {"rows": 50, "columns": 100}}`)))
		read := make(chan struct{})
		go func() { // a ping is answered to who reads
			defer close(read)
			for err := error(nil); err == nil; {
				_, _, err = conn.Read(t.Context())
			}
		}()
		assert.NilError(t, conn.Ping(t.Context()))
		assert.NilError(t, conn.Close(websocket.StatusNormalClosure, ""))
		<-read
	})
	t.Run("goes on without its client", func(t *testing.T) {
		c := i.start(http.StatusCreated, shell)
		conn, _, err := dial(t, c.ID, token)
		assert.NilError(t, err)
		types(t, conn, "X=kept; echo a\"way\"\n")
		shows(t, conn, "away\r\n")
		assert.NilError(t, conn.Close(websocket.StatusNormalClosure, ""))
		again, answer, err := dial(t, c.ID, nil, client.TerminalProtocol, "bearer."+harness.Token)
		assert.NilError(t, err)
		defer again.CloseNow()
		assert.Equal(t, answer.Header.Get("Sec-WebSocket-Protocol"), client.TerminalProtocol, "the token is not repeated")
		shows(t, again, "away\r\n") // what it has missed
		assert.NilError(t, again.Write(t.Context(), websocket.MessageText, []byte(`{"resize": {"rows": 50, "columns": 100}}`)))
		types(t, again, "echo $X $(stty size)\n")
		shows(t, again, "kept 50 100\r\n")
		types(t, again, "exit 7\n")
		var message client.TerminalMessage
		for message.Done == nil {
			kind, frame, err := again.Read(t.Context())
			assert.NilError(t, err)
			if kind == websocket.MessageText {
				assert.NilError(t, json.Unmarshal(frame, &message))
			}
		}
		assert.Equal(t, message.Done.State, "failed")
		assert.Equal(t, *message.Done.ExitCode, 7)
		_, _, err = again.Read(t.Context())
		assert.Equal(t, websocket.CloseStatus(err), websocket.StatusNormalClosure)
		assert.ErrorContains(t, err, "failed, exit code 7")
	})
	t.Run("breaking the rules", func(t *testing.T) {
		c := i.start(http.StatusCreated, shell)
		for _, frame := range []string{`{}`, `x`, `{"resize": {"rows": 0, "columns": 1}}`, `{"resize": {"rows": 1, "columns": 65536}}`} {
			conn, _, err := dial(t, c.ID, token)
			assert.NilError(t, err)
			defer conn.CloseNow()
			assert.NilError(t, conn.Write(t.Context(), websocket.MessageText, []byte(frame)))
			for err == nil {
				_, _, err = conn.Read(t.Context())
			}
			assert.Check(t, is.Equal(websocket.CloseStatus(err), websocket.StatusPolicyViolation), frame)
		}
		conn, _, err := dial(t, c.ID, token)
		assert.NilError(t, err)
		defer conn.CloseNow()
		_ = conn.Write(t.Context(), websocket.MessageBinary, make([]byte, 65<<10))
		for err == nil {
			_, _, err = conn.Read(t.Context())
		}
		assert.Check(t, is.Equal(websocket.CloseStatus(err), websocket.StatusMessageTooBig))
	})
	t.Run("refused", func(t *testing.T) {
		terminal := i.start(http.StatusCreated, shell).ID
		pipes := i.start(http.StatusCreated, map[string]any{"argv": []string{"sleep", "1000"}, "background": true}).ID
		foreign := token.Clone()
		foreign.Set("Origin", "https://elsewhere.example")
		for name, c := range map[string]struct {
			id        string
			header    http.Header
			protocols []string
			status    int
		}{
			"no token":          {terminal, nil, nil, http.StatusUnauthorized},
			"a wrong one":       {terminal, nil, []string{"bearer.wrong"}, http.StatusUnauthorized},
			"two that differ":   {terminal, token, []string{"bearer.wrong"}, http.StatusUnauthorized},
			"of another tenant": {terminal, nil, []string{"bearer." + harness.OtherToken}, http.StatusNotFound},
			"another origin":    {terminal, foreign, nil, http.StatusForbidden},
			"no terminal":       {pipes, token, nil, http.StatusConflict},
			"no such command":   {"c-99", token, nil, http.StatusNotFound},
		} {
			_, answer, err := dial(t, c.id, c.header, c.protocols...)
			assert.Check(t, err != nil, name)
			assert.Check(t, is.Equal(answer.Status, c.status), name)
			assert.Check(t, is.Equal(answer.Header.Get("Content-Type"), "application/problem+json"), name)
		}
		harness.Refused(t, i.Do(http.MethodGet, i.path+"/"+terminal+"/terminal", harness.Token, nil), http.StatusBadRequest, "SB010")
		assert.Check(t, !strings.Contains(b.Log(), harness.Token) && !strings.Contains(b.Log(), harness.OtherToken))
	})
}

func bearer() http.Header { return http.Header{"Authorization": {"Bearer " + harness.Token}} }

// dial opens the terminal of a command.
func (i commandInstance) dial(t *testing.T, id string, header http.Header, protocols ...string) (*websocket.Conn, harness.Answer, error) {
	conn, resp, err := websocket.Dial(t.Context(), strings.Replace(i.URL, "http", "ws", 1)+i.path+"/"+id+"/terminal", &websocket.DialOptions{HTTPHeader: header, Subprotocols: protocols}) //nolint:bodyclose // Dial has read it
	if resp == nil {
		return conn, harness.Answer{}, err
	}
	return conn, harness.Answer{Status: resp.StatusCode, Header: resp.Header}, err
}

// A stop waits for executions, and not for those who watch what would never end.
func TestABrokerThatStopsDoesNotWaitForWatchers(t *testing.T) {
	t.Parallel()
	b := harness.Start(t, harness.Options{
		// Longer than the harness waits for a broker to stop.
		Config: harness.Tenants + fmt.Sprintf("limits { shutdown_timeout = \"10m\" }\nprovider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 1\n}\n", binaries.Runsc(t)),
	})
	i := newCommandInstance(t, b)
	c := i.start(http.StatusCreated, map[string]any{"argv": []string{"sleep", "1000"}, "terminal": map[string]int{"rows": 24, "columns": 80}, "background": true})
	conn, _, err := i.dial(t, c.ID, bearer())
	assert.NilError(t, err)
	defer conn.CloseNow()
	logs := i.events(t.Context(), http.MethodGet, "/"+c.ID+"/logs?follow=true", nil)
	var started command
	logs.next(client.EventStarted, &started)
	ended := make(chan int, 1)
	go func() { ended <- b.Stop() }()
	for err == nil {
		_, _, err = conn.Read(t.Context())
	}
	var p harness.Problem
	logs.next(client.EventError, &p)
	assert.Equal(t, p.Code, "SB009")
	assert.Equal(t, <-ended, 0)
}
