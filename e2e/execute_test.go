package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// What each kind of code comes to is tested beside the provider; these are the
// cases that cross the whole system.
func TestCodeRunsInARealSandbox(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := real.Broker(t)
	cases := []struct {
		name    string
		request map[string]any
		check   func(t *testing.T, e harness.Execution)
	}{
		{"python main with arguments", map[string]any{
			"language": "python", "arguments": map[string]any{"name": "World", "count": 3},
			"code": `def main(name: str, count: int) -> dict: return {"message": f"Hello {name}!" * count}`,
		}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(string(e.Result), `{"message": "Hello World!Hello World!Hello World!"}`))
		}},
		{"javascript main with arguments", map[string]any{
			"language": "node", "arguments": map[string]any{"name": "World", "count": 3},
			"code": "function main(args) { return {message: `Hello ${args.name}!`.repeat(args.count)} }",
		}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(string(e.Result), `{"message":"Hello World!Hello World!Hello World!"}`))
		}},
		{"an exported main that has no other name", map[string]any{
			"language": "javascript", "arguments": map[string]any{"name": "World"},
			"code": "module.exports = { main: async (args) => `Hello ${args.name}!` }",
		}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(string(e.Result), `"Hello World!"`), e.Stderr)
		}},
		{"an exported default of a module", map[string]any{
			"language": "javascript", "arguments": map[string]any{"name": "World"},
			"code": "import fs from 'node:fs';\nexport default { async main(args) { return `Hello ${args.name}!` } }",
		}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(string(e.Result), `"Hello World!"`), e.Stderr)
		}},
		{"a script that prints and exits 3", map[string]any{"language": "python3", "code": "print('x')\nraise SystemExit(3)"}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(e.Status, "failed"))
			assert.Check(t, is.Equal(e.ExitCode, 3))
			assert.Check(t, is.Equal(e.Stdout, "x\n"))
			assert.Check(t, is.Len(e.Result, 0))
		}},
		{"a raise", map[string]any{"language": "python", "code": "raise ValueError('boom')"}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(e.ExitCode, 1))
			assert.Check(t, is.Contains(e.Stderr, "ValueError: boom"))
			assert.Check(t, e.Error == nil, "the code's failure is not the service's")
		}},
		{"bytes that are no UTF-8", map[string]any{"language": "sh", "code": `printf 'a\0\xff'`}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(e.Stdout, "a\x00\ufffd"))
			assert.Check(t, is.Equal(string(e.StdoutBase64), "a\x00\xff"))
		}},
		{"10 MB of output", map[string]any{"language": "bash", "code": "head -c 10000000 /dev/zero | tr '\\0' x"}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, e.Truncated)
			assert.Check(t, is.Equal(len(e.Stdout), 1<<20))
		}},
		{"an endless loop", map[string]any{"language": "python", "code": "print('so far')\nwhile True: pass", "timeout": 1}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(e.Status, "timeout"))
			assert.Check(t, e.TimedOut)
			assert.Check(t, e.Error != nil && e.Error.Code == "SB005")
			assert.Check(t, is.Equal(e.Stdout, "so far\n"))
		}},
		{"a fork bomb", map[string]any{"language": "bash", "code": "echo so far; :() { : | : & }; :; while :; do sleep 1; done", "timeout": 2}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(e.Status, "timeout"))
		}},
		{"2 GB", map[string]any{"language": "python", "code": "x = b'x' * (2 << 30)"}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(e.Status, "out_of_memory"))
			assert.Check(t, e.Error != nil && e.Error.Code == "SB006")
		}},
		{"a child that holds stdout open", map[string]any{"language": "bash", "code": "sleep 1000 & echo done"}, func(t *testing.T, e harness.Execution) {
			assert.Check(t, is.Equal(e.Status, "succeeded"))
			assert.Check(t, is.Equal(e.Stdout, "done\n"))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := b.Execute(t, c.request)
			limit, limited := c.request["timeout"].(int)
			for limited && e.Stdout == "" && limit < 60 { // how far it comes is the machine's matter
				limit *= 2
				c.request["timeout"] = limit
				e = b.Execute(t, c.request)
			}
			c.check(t, e)
			assert.Check(t, is.Equal(e.Provider, "self_managed"))
			assert.Check(t, strings.HasPrefix(e.InstanceID, "acme:"))
			after := b.Execute(t, map[string]any{"language": "bash", "code": "echo next"})
			assert.Check(t, is.Equal(after.Stdout, "next\n"), "the broker serves the next request")
		})
	}
}

func TestASessionKeepsItsInstanceAndSharesItWithNobody(t *testing.T) {
	t.Parallel()
	b := real.Broker(t)
	run := func(token, session, code string) harness.Execution {
		t.Helper()
		var e harness.Execution
		answer := b.Do(http.MethodPost, "/api/v1/execute", token, map[string]any{"language": "bash", "code": code, "session_id": session})
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		answer.Into(t, &e)
		return e
	}
	first := run(harness.Token, "s", "echo mine > f; cat f")
	again := run(harness.Token, "s", "cat f")
	assert.Equal(t, again.Stdout, "mine\n")
	assert.Equal(t, again.InstanceID, first.InstanceID)
	assert.Check(t, run(harness.Token, "other", "cat f").InstanceID != first.InstanceID)
	assert.Equal(t, run(harness.OtherToken, "s", "ls -A").Stdout, "artifacts\n")

	made := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "new", "language": "python"})
	assert.Equal(t, made.Status, http.StatusCreated)
	assert.Check(t, is.Contains(string(made.Body), `"executions":0`))
	made = b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "new"})
	assert.Equal(t, made.Status, http.StatusOK, "a session has one instance")

	path := "/api/v1/instances/" + first.InstanceID
	foreign := b.Do(http.MethodGet, path, harness.OtherToken, nil)
	missing := b.Do(http.MethodGet, "/api/v1/instances/acme:s:aaaaaaaaaaaaaaaaaaaa", harness.OtherToken, nil)
	a, m := harness.Refused(t, foreign, http.StatusNotFound, "SB013"), harness.Refused(t, missing, http.StatusNotFound, "SB013")
	assert.Equal(t, strings.ReplaceAll(a.Detail, first.InstanceID, ""), strings.ReplaceAll(m.Detail, "acme:s:aaaaaaaaaaaaaaaaaaaa", ""))
	harness.Refused(t, b.Do(http.MethodDelete, path, harness.OtherToken, nil), http.StatusNotFound, "SB013")

	escaped := strings.ReplaceAll(path, ":", "%3A")
	assert.Equal(t, b.Do(http.MethodGet, escaped, harness.Token, nil).Status, http.StatusOK)
	assert.Equal(t, b.Do(http.MethodDelete, path, harness.Token, nil).Status, http.StatusNoContent)
	harness.Refused(t, b.Do(http.MethodGet, path, harness.Token, nil), http.StatusNotFound, "SB013")
}

func TestNoTokenAndAWrongTokenAreRefused(t *testing.T) {
	t.Parallel()
	b := mock.Broker(t)
	for _, token := range []string{"", "wrong", harness.Token + "x"} {
		harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", token, map[string]any{"language": "python", "code": "1"}), http.StatusUnauthorized, "SB011")
	}
}

func TestAHundredAtOnceAllSucceed(t *testing.T) {
	tier.Full(t)
	b := startReal(t, `queue_timeout = "10m"`)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "python", "code": fmt.Sprintf("print(%d)", i)})
			assert.Check(t, answer.Err)
			assert.Check(t, is.Equal(answer.Status, http.StatusOK), "%s", answer.Body)
			assert.Check(t, is.Contains(string(answer.Body), fmt.Sprintf(`"stdout":"%d\n"`, i)))
		})
	}
	wg.Wait()
}

func TestACallerThatGoesAwayCancelsItsExecution(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, func(t *testing.T, b *harness.Broker) {
		session := map[string]any{"language": "bash", "session_id": "its-caller-goes"}
		start := map[string]any{"language": "bash", "session_id": "its-caller-goes", "timeout": 20, "code": "while :; do echo x >> beat; done"}
		session["code"] = "true"
		b.Execute(t, session)

		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan harness.Answer, 1)
		go func() { gone <- b.DoContext(ctx, http.MethodPost, "/api/v1/execute", harness.Token, start) }()
		session["code"] = "test -s beat && echo started"
		poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(b.Execute(t, session).Stdout, "started\n")) }, poll.WithTimeout(2*time.Minute))
		cancel()
		assert.ErrorIs(t, (<-gone).Err, context.Canceled)
		session["code"] = "before=$(stat -c %s beat); sleep 0.3; test $before = $(stat -c %s beat) && echo still"
		poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(b.Execute(t, session).Stdout, "still\n")) }, poll.WithTimeout(2*time.Minute))
	})
}
