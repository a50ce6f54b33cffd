package provider

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestABashContextKeepsItsState(t *testing.T) { inTheGuest(t, testShellState) }

func testShellState(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	instance := create(t, p, templateBash)
	made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: instance, Language: sdk.Bash, Cwd: "/tmp", Env: map[string]string{"MODE": "it's\n$x"}})
	assert.NilError(t, err)
	c := inContext{t, p, instance, made}
	for _, step := range []struct {
		code, stdout, stderr string
		exit                 int
	}{
		{code: "x=5; f() { echo \"in f $x\"; }; cd /workspace; readonly r=1; echo \"$MODE\"", stdout: "it's\n$x\n"},
		{code: "f; pwd; shopt -s nullglob", stdout: "in f 5\n/workspace\n"},
		{code: "echo out; echo err >&2; false", stdout: "out\n", stderr: "err\n", exit: 1},
		{code: "echo $?", stdout: "0\n"},
		{code: "if true; then", stderr: "syntax error: unexpected end of file", exit: 2},
		{code: "echo 'it'\"'\"'s \\ '\necho second", stdout: "it's \\ \nsecond\n"},
		{code: "echo \"${nothing:?is missing}\"; echo no", stderr: "nothing: is missing", exit: 1},
		{code: "x=6; exit 7; echo no", exit: 7},
		{code: "(exit 3) || echo $? $x; g() { exit; }; false; g", stdout: "3 6\n", exit: 1},
		{code: "cat; read line || echo nothing to read", stdout: "nothing to read\n"},
		{code: "set -u; echo $nothing; echo no", stderr: "nothing: unbound variable", exit: 1},
		{code: "set +u; echo \"<$nothing>\"; r=2; echo no", stdout: "<>\n", stderr: "r: readonly variable", exit: 1},
		{code: "echo {1..3} ; echo !! $'a\\tb'", stdout: "1 2 3\n!! a\tb\n"},
		{code: "set -x; echo traced; set +x", stdout: "traced\n", stderr: "++ echo traced\n++ set +x\n"},
		{code: "ls -l /proc/self/fd | grep -c pipe", stdout: "2\n"},
		{code: strings.Repeat("#", 100_000) + "\necho long", stdout: "long\n"},
		{code: ""},
	} {
		o := c.run(step.code)
		assert.Check(t, is.Equal(o.stdout, step.stdout), "%.50s", step.code)
		assert.Check(t, is.Contains(o.stderr, step.stderr), "%.50s", step.code)
		if step.stderr == "" {
			assert.Check(t, is.Equal(o.stderr, ""), "%.50s", step.code)
		}
		assert.Check(t, is.Equal(o.ExitCode, step.exit), "%.50s: %+v", step.code, o)
		assert.Check(t, is.Equal(o.Status == sdk.StatusSucceeded, step.exit == 0), "%.50s", step.code)
	}

	env := func(r *sdk.ExecuteRequest) {
		r.Env = map[string]string{"A": "one 'A'", "x": "other", "B": "b", "not a name": "1"}
	}
	assert.Equal(t, c.run("echo \"$A $x\"; bash -c 'echo $A'; B=changed", env).stdout, "one 'A' other\none 'A'\n")
	assert.Equal(t, c.run("echo \"<$A> $x $B\"").stdout, "<> 6 changed\n", "variables hold for one execution, unless the code changes them")

	_, err = execute(t, p, sdk.ExecuteRequest{InstanceID: instance, ContextID: c.ID, Code: "x", Arguments: []byte("{}")})
	assert.ErrorContains(t, err, "arguments")

	o := c.run("builtin exit 4")
	assert.Equal(t, o.ExitCode, 4)
	assert.Assert(t, is.Contains(o.Detail, "starts afresh"))
	assert.Equal(t, c.run("echo \"<$x>\"; pwd").stdout, "<>\n/tmp\n")
}

func TestAnInterruptKeepsTheStateOfABashContext(t *testing.T) {
	tier.Full(t)
	p := newProvider(t, nil)
	c := newContext(t, p, create(t, p, templateBash), sdk.Bash)
	c.run("x=5")
	for name, code := range map[string]string{
		"a program":                    "echo begun; sleep 100; echo no",
		"a loop":                       "echo begun; while :; do :; done",
		"a loop in nested functions":   "g() { while :; do :; done; }; h() { g; echo no; }; echo begun; h; echo no",
		"a program that is waited for": "sleep 100 & echo begun; wait; echo no",
		"a program in a subshell":      "echo begun; (sleep 100; echo no)",
		"the right end of a pipeline":  "echo begun; sleep 100 | cat",
		"a command in a substitution":  "echo begun; y=$(sleep 100); echo no",
		"a program without its output": "(echo begun; exec 1>&-; sleep 100)",
	} {
		t.Run(name, func(t *testing.T) {
			var o outcome
			untilItShows(t, time.Second, func(limit time.Duration) string {
				o = c.run(code, func(r *sdk.ExecuteRequest) { r.Timeout = limit })
				return o.stdout
			})
			assert.Check(t, is.Equal(o.Status, sdk.StatusTimeout))
			assert.Check(t, is.Equal(o.ExitCode, 130), o.Detail)
			assert.Check(t, is.Equal(o.stdout, "begun\n"))
			assert.Check(t, is.Equal(c.run("echo $x").stdout, "5\n"))
		})
	}
	t.Run("who goes away", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Execute(ctx, sdk.ExecuteRequest{InstanceID: c.instance, ContextID: c.ID, Code: "sleep 100", ExecutionID: "gone", Timeout: time.Minute, OutputLimit: 1 << 20}, &recorder{})
		assert.Check(t, errors.Is(err, context.DeadlineExceeded), err)
		assert.Check(t, is.Equal(c.run("echo $x").stdout, "5\n"))
	})
	t.Run("what does not end is killed, and the state with it", func(t *testing.T) {
		o := c.run("trap '' INT; sleep 100", func(r *sdk.ExecuteRequest) { r.Timeout = time.Second })
		assert.Check(t, is.Equal(o.ExitCode, 137))
		assert.Check(t, is.Equal(c.run("echo \"<$x>\"").stdout, "<>\n"))
	})
}
