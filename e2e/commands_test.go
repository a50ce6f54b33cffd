package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// command is a command as the API shows it.
type command struct {
	ID           string   `json:"id"`
	Argv         []string `json:"argv"`
	State        string   `json:"state"`
	ExitCode     *int     `json:"exit_code"`
	Stdout       string   `json:"stdout"`
	Stderr       string   `json:"stderr"`
	StdoutBase64 []byte   `json:"stdout_base64"`
	Truncated    bool     `json:"truncated"`
	StdoutBytes  int64    `json:"stdout_bytes"`
	Error        *struct {
		Code string `json:"code"`
	} `json:"error"`
}

// commandInstance is an instance whose commands a test uses.
type commandInstance struct {
	*harness.Broker
	t    *testing.T
	id   string
	path string
}

func newCommandInstance(t *testing.T, b *harness.Broker) commandInstance {
	t.Helper()
	var made struct{ ID string }
	answer := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"template": "bash", "env": map[string]string{"GREETING": "hello"}})
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	answer.Into(t, &made)
	destroyAfter(t, b, made.ID)
	return commandInstance{b, t, made.ID, "/api/v1/instances/" + made.ID + "/commands"}
}

func (i commandInstance) start(status int, request map[string]any) command {
	i.t.Helper()
	answer := i.Do(http.MethodPost, i.path, harness.Token, request)
	assert.Equal(i.t, answer.Status, status, "%s", answer.Body)
	var c command
	answer.Into(i.t, &c)
	return c
}

func (i commandInstance) get(path string, into any) {
	i.t.Helper()
	answer := i.Do(http.MethodGet, i.path+path, harness.Token, nil)
	assert.Equal(i.t, answer.Status, http.StatusOK, "%s", answer.Body)
	answer.Into(i.t, into)
}

func (i commandInstance) post(path string, body any) harness.Answer {
	i.t.Helper()
	answer := i.Do(http.MethodPost, i.path+path, harness.Token, body)
	assert.NilError(i.t, answer.Err)
	return answer
}

func (i commandInstance) wait(id string) command {
	i.t.Helper()
	answer := i.post("/"+id+"/wait", nil)
	assert.Equal(i.t, answer.Status, http.StatusOK, "%s", answer.Body)
	var c command
	answer.Into(i.t, &c)
	return c
}

func TestCommands(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, testCommands)
}

func testCommands(t *testing.T, b *harness.Broker) {
	i := newCommandInstance(t, b)
	no := func(n int) *int { return &n }
	for _, c := range []struct {
		name    string
		request map[string]any
		want    command
	}{
		{"a program", map[string]any{"argv": []string{"printf", "%s", "a b"}}, command{State: "succeeded", ExitCode: no(0), Stdout: "a b"}},
		{"a line of shell", map[string]any{"command": "echo $GREETING | tr a-z A-Z; echo oops >&2; exit 3"}, command{State: "failed", ExitCode: no(3), Stdout: "HELLO\n", Stderr: "oops\n"}},
		{"variables and a directory", map[string]any{"command": "echo $A; pwd", "env": map[string]string{"A": "b"}, "cwd": "/tmp"}, command{State: "succeeded", ExitCode: no(0), Stdout: "b\n/tmp\n"}},
		{"input", map[string]any{"argv": []string{"cat"}, "input": "some\ntext"}, command{State: "succeeded", ExitCode: no(0), Stdout: "some\ntext"}},
		{"input that nobody reads", map[string]any{"argv": []string{"true"}, "input": strings.Repeat("x", 64<<10)}, command{State: "succeeded", ExitCode: no(0)}},
		{"bytes that are no UTF-8", map[string]any{"command": `printf 'a\0\xff'`}, command{State: "succeeded", ExitCode: no(0), Stdout: "a\x00\ufffd", StdoutBase64: []byte("a\x00\xff")}},
		{"a terminal", map[string]any{"command": "tty > /dev/null && stty size", "terminal": map[string]int{"rows": 7, "columns": 9}}, command{State: "succeeded", ExitCode: no(0), Stdout: "7 9\r\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := i.start(http.StatusOK, c.request)
			assert.Check(t, strings.HasPrefix(got.ID, "c-"))
			got.ID, got.Argv, got.StdoutBytes = "", nil, 0
			assert.DeepEqual(t, got, c.want)
		})
	}
	t.Run("a time limit", func(t *testing.T) {
		var got command
		for limit := 0.5; got.Stdout == "" && limit < 60; limit *= 2 { // how far it comes is the machine's matter
			got = i.start(http.StatusOK, map[string]any{"command": "echo so far; sleep 1000", "timeout": limit})
		}
		assert.Check(t, is.Equal(got.State, "timeout"))
		assert.Check(t, is.Equal(got.Stdout, "so far\n"))
		assert.Check(t, got.Error != nil && got.Error.Code == "SB005")
	})
	t.Run("too much output", func(t *testing.T) {
		got := i.start(http.StatusOK, map[string]any{"command": "head -c 3000000 /dev/zero | tr '\\0' x"})
		assert.Check(t, got.Truncated)
		assert.Check(t, len(got.Stdout) <= 1<<20)
		assert.Check(t, is.Equal(got.StdoutBytes, int64(3000000)))
	})
	for name, c := range map[string]struct {
		request map[string]any
		field   string
	}{
		"no program":                  {map[string]any{"argv": []string{"no-such-program"}}, "argv"},
		"no directory":                {map[string]any{"argv": []string{"true"}, "cwd": "/no/such"}, "cwd"},
		"neither argv nor command":    {map[string]any{}, "argv"},
		"both argv and command":       {map[string]any{"argv": []string{"true"}, "command": "true"}, "command"},
		"an empty argv":               {map[string]any{"argv": []string{}}, "argv"},
		"an argument of another kind": {map[string]any{"argv": []any{"echo", 1}}, "argv[1]"},
		"a terminal without size":     {map[string]any{"argv": []string{"true"}, "terminal": map[string]int{"rows": 0, "columns": 80}}, "terminal.rows"},
		"too long in the foreground":  {map[string]any{"argv": []string{"true"}, "timeout": 1e9}, "timeout"},
		"too much input":              {map[string]any{"argv": []string{"true"}, "input": strings.Repeat("x", 64<<10+1)}, "input"},
		"a variable":                  {map[string]any{"argv": []string{"true"}, "env": map[string]string{"A=": "b"}}, "env"},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			p := harness.Refused(t, i.post("", c.request), http.StatusUnprocessableEntity, "SB010")
			assert.Check(t, is.Equal(p.Field, c.field), p.Detail)
		})
	}
}

func TestBackgroundCommands(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, testBackgroundCommands)
}

func testBackgroundCommands(t *testing.T, b *harness.Broker) {
	i := newCommandInstance(t, b)
	started := i.start(http.StatusCreated, map[string]any{"command": "while read -r x; do echo got $x; done; echo bye >&2; exit 5", "stdin": true, "background": true, "input": "first\n"})
	assert.Equal(t, started.State, "running")
	assert.Assert(t, started.ExitCode == nil)
	one := "/" + started.ID
	type logs struct {
		Stdout     string  `json:"stdout"`
		Stderr     string  `json:"stderr"`
		NextStdout int64   `json:"next_stdout_offset"`
		NextStderr int64   `json:"next_stderr_offset"`
		Command    command `json:"command"`
	}
	assert.Equal(t, i.post(one+"/stdin", []byte("second\nthi")).Status, http.StatusNoContent)
	assert.Equal(t, i.post(one+"/stdin", []byte("rd\n")).Status, http.StatusNoContent)
	var l logs
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		answer := i.Do(http.MethodGet, i.path+one+"/logs", harness.Token, nil)
		answer.Into(t, &l)
		return poll.Compare(is.Equal(l.Stdout, "got first\ngot second\ngot third\n"))
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, l.NextStdout, int64(len(l.Stdout)))

	answer := i.post(one+"/wait?timeout=0.1", nil)
	var c command
	answer.Into(t, &c)
	assert.Equal(t, c.State, "running", "the wait is over before the command")
	assert.Equal(t, i.post(one+"/stdin?end=true", []byte("last\n")).Status, http.StatusNoContent)
	c = i.wait(started.ID)
	assert.Equal(t, c.State, "failed")
	assert.Equal(t, *c.ExitCode, 5)
	i.get(fmt.Sprintf("%s/logs?stdout_offset=%d", one, l.NextStdout), &l)
	assert.Equal(t, l.Stdout, "got last\n")
	assert.Equal(t, l.Stderr, "bye\n")
	assert.Equal(t, l.Command.State, "failed")
	harness.Refused(t, i.post(one+"/stdin", []byte("more")), http.StatusConflict, "SB014")
	harness.Refused(t, i.post(one+"/signal", map[string]any{"signal": "SIGTERM"}), http.StatusConflict, "SB014")
	assert.Equal(t, i.Do(http.MethodDelete, i.path+one, harness.Token, nil).Status, http.StatusNoContent)

	sleeper := i.start(http.StatusCreated, map[string]any{"argv": []string{"sleep", "1000"}, "background": true})
	harness.Refused(t, i.post("/"+sleeper.ID+"/signal", map[string]any{"signal": "SIGNONE"}), http.StatusUnprocessableEntity, "SB010")
	assert.Equal(t, i.post("/"+sleeper.ID+"/signal", map[string]any{"signal": "SIGINT"}).Status, http.StatusNoContent)
	assert.Equal(t, i.wait(sleeper.ID).State, "cancelled")
	sleeper = i.start(http.StatusCreated, map[string]any{"argv": []string{"sleep", "1000"}, "background": true})
	assert.Equal(t, i.Do(http.MethodDelete, i.path+"/"+sleeper.ID, harness.Token, nil).Status, http.StatusNoContent)
	killed := i.wait(sleeper.ID)
	assert.Equal(t, killed.State, "cancelled")
	assert.Equal(t, *killed.ExitCode, 137)

	var list struct{ Commands []command }
	i.get("", &list)
	assert.Equal(t, len(list.Commands), 3)
	assert.DeepEqual(t, list.Commands[2].Argv, []string{"sleep", "1000"})
	i.get("/"+sleeper.ID, &c)
	assert.Equal(t, c.State, "cancelled")

	for _, path := range []string{i.path + "/c-99", i.path + "/c-99/logs", "/api/v1/instances/acme:s:aaaaaaaaaaaaaaaaaaaa/commands"} {
		harness.Refused(t, i.Do(http.MethodGet, path, harness.Token, nil), http.StatusNotFound, "SB013")
	}
	harness.Refused(t, i.Do(http.MethodGet, i.path, harness.OtherToken, nil), http.StatusNotFound, "SB013")
	harness.Refused(t, i.Do(http.MethodGet, i.path+one+"/logs?follow=true", harness.Token, nil), http.StatusUnprocessableEntity, "SB010")
}

func TestLogsInPages(t *testing.T) {
	t.Parallel()
	b := real.Broker(t)
	i := newCommandInstance(t, b)
	c := i.start(http.StatusCreated, map[string]any{"command": "yes 'déjà vu ' | head -n 120000 | tr -d '\\n'; printf '\\303'", "background": true})
	assert.Equal(t, i.wait(c.ID).State, "succeeded")
	var all bytes.Buffer
	next, pages := int64(0), 0
	for {
		var l struct {
			Stdout       string  `json:"stdout"`
			StdoutBase64 []byte  `json:"stdout_base64"`
			Offset       int64   `json:"stdout_offset"`
			Next         int64   `json:"next_stdout_offset"`
			Command      command `json:"command"`
		}
		i.get(fmt.Sprintf("/%s/logs?stdout_offset=%d", c.ID, next), &l)
		if pages == 0 { // 1 MiB of 1.2 MB is kept
			assert.Check(t, l.Offset > 0, "says what is lost")
		} else {
			assert.Check(t, is.Equal(l.Offset, next))
		}
		if l.StdoutBase64 != nil {
			all.Write(l.StdoutBase64)
		} else {
			all.WriteString(l.Stdout)
		}
		next = l.Next
		pages++
		if next == l.Command.StdoutBytes {
			break
		}
	}
	assert.Check(t, is.Equal(next, int64(1200001)))
	assert.Check(t, pages > 3)
	want := strings.Repeat("déjà vu ", 120000) + "\xc3"
	assert.Check(t, all.Len() == 1<<20 && strings.HasSuffix(want, all.String()))
}

func TestAForegroundCommandEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, testAForegroundCommandEndsWithItsCaller)
}

func testAForegroundCommandEndsWithItsCaller(t *testing.T, b *harness.Broker) {
	i := newCommandInstance(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan harness.Answer, 1)
	go func() {
		gone <- b.DoContext(ctx, http.MethodPost, i.path, harness.Token, map[string]any{"command": "setsid sleep 1000 & sleep 1000"})
	}()
	var list struct{ Commands []command }
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		i.get("", &list)
		return poll.Compare(is.Len(list.Commands, 1))
	}, poll.WithTimeout(2*time.Minute))
	cancel()
	assert.ErrorIs(t, (<-gone).Err, context.Canceled)
	c := i.wait(list.Commands[0].ID)
	assert.Equal(t, c.State, "cancelled")
	assert.Equal(t, *c.ExitCode, 137)
}

func TestStdinThatIsNotReadIsAConflict(t *testing.T) {
	t.Parallel()
	b := real.Broker(t)
	i := newCommandInstance(t, b)
	c := i.start(http.StatusCreated, map[string]any{"argv": []string{"sleep", "1000"}, "stdin": true, "background": true})
	p := harness.Refused(t, i.post("/"+c.ID+"/stdin?timeout=0.3", make([]byte, 1<<20)), http.StatusConflict, "SB014")
	assert.Check(t, is.Contains(p.Detail, "does not read its standard input"))
}

// 64 MB pass through while the program reads slowly; nothing of it is lost.
func TestMuchStdin(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := real.Broker(t)
	i := newCommandInstance(t, b)
	c := i.start(http.StatusCreated, map[string]any{"argv": []string{"wc", "-c"}, "stdin": true, "background": true})
	assert.Equal(t, i.post("/"+c.ID+"/stdin?end=true", make([]byte, 16<<20)).Status, http.StatusNoContent)
	assert.Equal(t, i.wait(c.ID).State, "succeeded")
	var l struct{ Stdout string }
	i.get("/"+c.ID+"/logs", &l)
	assert.Equal(t, strings.TrimSpace(l.Stdout), "16777216")
}

func TestAProviderWithoutCommands(t *testing.T) {
	t.Parallel()
	b := mock.Broker(t)
	var made struct{ ID string }
	b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"language": "python"}).Into(t, &made)
	p := harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances/"+made.ID+"/commands", harness.Token, map[string]any{"argv": []string{"true"}}), http.StatusNotImplemented, "SB015")
	assert.Check(t, is.Contains(p.Detail, "has no commands"))
}

// A broker that is killed leaves no command behind, however deep it hides.
func TestCommandsEndWithTheBroker(t *testing.T) {
	t.Parallel()
	b := startReal(t, "")
	i := newCommandInstance(t, b)
	i.start(http.StatusCreated, map[string]any{"command": "(setsid nohup sleep 1000 > /dev/null 2>&1 &) & sleep 1000", "background": true})
	b.Kill()
	b.WaitGone()
}
