package provider

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAPythonContextTakesWhatNotebooksHave(t *testing.T) {
	p := newProvider(t, nil)
	c := newContext(t, p, create(t, p, templatePython), sdk.Python)
	for _, step := range []struct{ code, value, stdout, stderr string }{
		{code: "!echo hello", stdout: "hello\n"},
		{code: "n = 3\nfor i in range(n):\n    !echo {i} $n ${HOME}", stdout: "0 3 /workspace\n1 3 /workspace\n2 3 /workspace\n"},
		{code: "lines = !printf 'a\\nb\\n'\nlines", value: "['a', 'b']"},
		{code: "lines.s", value: "'a b'"},
		{code: "!!echo it\\'s", value: `["it's"]`},
		{code: "!exit 3\n_exit_code", value: "3"},
		{code: "!echo '{' \"it's\" $((1 + 2)) $$n {{x}}", stdout: "{ it's 3 {x}\n"},
		{code: "text = '''\n!echo no\n%cd no\n'''\n10 %n\n%pwd", value: "'/workspace'"},
		{code: "%mkdir -p sub\n%cd sub", stdout: "/workspace/sub\n"},
		{code: "where = %pwd\nwhere", value: "'/workspace/sub'"},
		{code: "%cd ..", stdout: "/workspace\n"},
		{code: "%env GREETING=hi {n}\n!echo $GREETING", stdout: "env: GREETING=hi 3\nhi 3\n"},
		{code: "%matplotlib inline\n%load_ext autoreload\n%autoreload 2"},
		{code: "%%bash\nx=5\necho $x; exit 0", stdout: "5\n"},
		{code: "%%writefile m.py\ndef f(): return 'from a file'\n", stdout: "Writing m.py\n"},
		{code: "import m\nm.f()", value: "'from a file'"},
		{code: "%%capture out\nprint('quiet')"},
		{code: "out.stdout", value: `'quiet\n'`},
		{code: "%run m.py\nf()", value: "'from a file'"},
		{code: "%timeit -n 1 -r 1 m = n", stdout: "1 loops each)\n"},
		{code: "%%time\ny = n + 1\ny", value: "4", stdout: "Wall time: "},
		{code: "z = %time 6 * 7\nz", value: "42", stdout: "Wall time: "},
		{code: "await __import__('asyncio').sleep(0)\n!echo after", stdout: "after\n"},
		{code: "%nosuch", stderr: "UsageError: there is no magic %nosuch here; there are %autoreload, %cd,"},
		{code: "!echo before\nx = = 1", stderr: "    x = = 1\n        ^\nSyntaxError: invalid syntax\n"},
		{code: "n?", stdout: "Help on int object:"},
		{code: "%%bash\nexit 3", stderr: "CalledProcessError"},
		{code: "def g():\n    !echo in a function\n    raise ValueError(1)\ng()", stdout: "in a function\n", stderr: "line 3, in g\n    raise ValueError(1)"},
	} {
		o := c.run(step.code)
		assert.Check(t, is.Equal(o.value(), step.value), "%s\n%s", step.code, o.stderr)
		if step.stdout == "" {
			assert.Check(t, is.Equal(o.stdout, ""), step.code)
		}
		assert.Check(t, is.Contains(o.stdout, step.stdout), step.code)
		if step.stderr == "" {
			assert.Check(t, is.Equal(o.stderr, ""), step.code)
		}
		assert.Check(t, is.Contains(o.stderr, step.stderr), step.code)
		assert.Check(t, is.Equal(o.Status == sdk.StatusSucceeded, step.stderr == ""), "%s: %+v", step.code, o)
	}
}

func TestTheCodePolicySeesCommandsOfTheShellInNotebooks(t *testing.T) {
	p := newProvider(t, map[string]any{"policy": "audit"})
	c := newContext(t, p, create(t, p, templatePython), sdk.Python)
	for code, rule := range map[string]string{
		"x = 1\n!echo hello":              "python.call.os.system",
		"x = !echo hello":                 "python.call.os.system",
		"%%bash\necho hello":              "python.call.os.system",
		"%time __import__('os').getpid()": "python.call.eval",
	} {
		o := c.run(code)
		found := []string{}
		for _, f := range o.Findings {
			found = append(found, f.Rule)
		}
		assert.Check(t, is.Contains(found, rule), code)
	}
}
