package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// cannedBroker answers every request alike and keeps what it got.
type cannedBroker struct {
	*httptest.Server
	token string
	body  any
}

func startCanned(t *testing.T, status int, answer string) *cannedBroker {
	t.Helper()
	b := &cannedBroker{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.token = r.Header.Get("Authorization")
		text, err := io.ReadAll(r.Body)
		assert.Check(t, err)
		assert.Check(t, cmp.Equal(r.Method+" "+r.URL.Path, "POST /api/v1/execute"))
		b.body = exactly(t, string(text))
		w.WriteHeader(status)
		_, err = io.WriteString(w, answer)
		assert.Check(t, err)
	}))
	t.Cleanup(b.Close)
	t.Setenv("SANDBOX_BROKER_URL", b.URL)
	t.Setenv("SANDBOX_BROKER_TOKEN", "some-token")
	return b
}

// exactly reads JSON and keeps numbers as they are written.
func exactly(t *testing.T, text string) (value any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	assert.Check(t, decoder.Decode(&value))
	return value
}

func runExec(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	var out, errOut strings.Builder
	term := &terminal{in: strings.NewReader(stdin), out: &out, err: &errOut, style: config.Style{Width: 100}}
	code := run(t.Context(), append([]string{"exec"}, args...), term, nil)
	return outcome{code, out.String(), errOut.String()}
}

func TestWhatExecSends(t *testing.T) {
	dir := fs.NewDir(t, "exec", fs.WithFile("a.py", "x = '<é>'"), fs.WithFile("b.MJS", "1"), fs.WithFile("c.txt", "1"))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a Python file":               {[]string{dir.Join("a.py")}, `{"code":"x = '<é>'","language":"python"}`},
		"JavaScript by its extension": {[]string{dir.Join("b.MJS")}, `{"code":"1","language":"javascript"}`},
		"a language that is named":    {[]string{dir.Join("c.txt"), "-l", "sh"}, `{"code":"1","language":"sh"}`},
		"standard input":              {[]string{"-"}, `{"code":"from stdin","language":"python"}`},
		"a time to wait":              {[]string{"-", "--wait", "1.5s"}, `{"code":"from stdin","language":"python","wait_ms":1500}`},
		"timeout and session":         {[]string{"-", "--timeout", "1m30s", "--session", "s1"}, `{"code":"from stdin","language":"python","timeout":90,"session_id":"s1"}`},
		"a file by its flag":          {[]string{"--file", dir.Join("a.py")}, `{"code":"x = '<é>'","language":"python"}`},
		"standard input by the flag":  {[]string{"-f", "-"}, `{"code":"from stdin","language":"python"}`},
		"a provider":                  {[]string{"-", "--provider", "e2b", "-s", "s1"}, `{"code":"from stdin","language":"python","session_id":"s1","provider":"e2b"}`},
		"strings stay strings": {
			[]string{"-", "--arg", "a=1", "-a", "b=x=y,z", "-a", "c=", "-a", "d=null", "-a", "e f=g"},
			`{"code":"from stdin","language":"python","arguments":{"a":"1","b":"x=y,z","c":"","d":"null","e f":"g"}}`,
		},
		"JSON stays JSON": {
			[]string{"-", "-a", "a:=1", "-a", `b:={"x":[1, "="]}`, "-a", "c:=null", "-a", "d:=12345678901234567890"},
			`{"code":"from stdin","language":"python","arguments":{"a":1,"b":{"x":[1,"="]},"c":null,"d":12345678901234567890}}`,
		},
		"all at once, one of them changed": {[]string{"-", "--args", `{"a":1,"b":2}`, "-a", "b:=3"}, `{"code":"from stdin","language":"python","arguments":{"a":1,"b":3}}`},
		"no arguments, which is not none":  {[]string{"-", "--args", `{}`}, `{"code":"from stdin","language":"python","arguments":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := startCanned(t, 200, `{"status":"succeeded"}`)
			got := runExec(t, "from stdin", test.args...)
			assert.Equal(t, got.code, 0, got.err)
			assert.DeepEqual(t, b.body, exactly(t, test.want))
			assert.Equal(t, b.token, "Bearer some-token")
		})
	}
}

func TestACommandLineForExecThatMakesNoSense(t *testing.T) {
	dir := fs.NewDir(t, "exec", fs.WithFile("c.txt", "1"), fs.WithFile("latin1.py", "\xe9"))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no file":                         {nil, "name a file"},
		"two files":                       {[]string{dir.Join("latin1.py"), "-f", "-"}, "name one file"},
		"a file that is not there":        {[]string{dir.Join("none.py")}, "no such file"},
		"an extension that tells nothing": {[]string{dir.Join("c.txt")}, "--language"},
		"bytes that are not UTF-8":        {[]string{dir.Join("latin1.py")}, "not UTF-8"},
		"an argument without a value":     {[]string{"-", "-a", "name"}, "NAME=TEXT or NAME:=JSON"},
		"an argument without a name":      {[]string{"-", "-a", ":=1"}, "NAME=TEXT or NAME:=JSON"},
		"JSON that is none":               {[]string{"-", "-a", "a:=x"}, "is not JSON"},
		"arguments that are no object":    {[]string{"-", "--args", "[1]"}, "must be a JSON object"},
		"arguments that are null":         {[]string{"-", "--args", "null"}, "must be a JSON object"},
		"a negative wait":                 {[]string{"-", "--wait=-1s"}, "--wait"},
		"a negative timeout":              {[]string{"-", "--timeout=-1s"}, "--timeout"},
		"a token that everybody sees":     {[]string{"-", "--token", "secret"}, "--token-file"},
		"standard input for two things":   {[]string{"-", "--token-file", "-"}, "standard input is one thing"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runExec(t, "1", test.args...)
			assert.Equal(t, got.code, 2, got.err)
			assert.Check(t, cmp.Contains(got.err, test.want))
		})
	}
}

func TestWhatExecPrints(t *testing.T) {
	whole := `{"status":"succeeded","stdout":"out","result":{"a":  1}}`
	for name, test := range map[string]struct {
		status      int
		answer      string
		args        []string
		code        int
		out, stderr string
	}{
		"output on its streams":           {200, `{"status":"succeeded","stdout":"out\n","stderr":"err\n"}`, nil, 0, "out\n", "err\n"},
		"the result on a line of its own": {200, `{"status":"succeeded","stdout":"out","result":{"a":1}}`, nil, 0, "out\n{\"a\":1}\n", ""},
		"a result that is null":           {200, `{"status":"succeeded","result":null}`, nil, 0, "null\n", ""},
		"bytes that are not UTF-8":        {200, `{"status":"succeeded","stdout":"\ufffd","stdout_base64":"/w=="}`, nil, 0, "\xff", ""},
		"the whole answer":                {200, whole, []string{"--json"}, 0, whole + "\n", ""},
		"the code's exit code":            {200, `{"status":"failed","exit_code":3}`, nil, 3, "", ""},
		"a failure without one":           {200, `{"status":"failed","exit_code":0}`, nil, 1, "", ""},
		"cut output":                      {200, `{"status":"succeeded","truncated":true}`, nil, 0, "", "sandbox-broker: the output was cut at the limit\n"},
		"a timeout":                       {200, `{"status":"timeout","exit_code":137,"error":{"code":"SB005","title":"execution timeout","detail":"after 1s"}}`, nil, 124, "", "sandbox-broker: SB005 execution timeout: after 1s\n"},
		"out of memory":                   {200, `{"status":"out_of_memory"}`, nil, 137, "", ""},
		"blocked":                         {200, `{"status":"blocked"}`, nil, 126, "", ""},
		"cancelled":                       {200, `{"status":"cancelled"}`, nil, 130, "", ""},
		"a refusal":                       {401, `{"code":"SB011","title":"not authenticated","detail":"A valid token is needed.","request_id":"r1"}`, nil, 3, "", "sandbox-broker: SB011 not authenticated: A valid token is needed. (request r1)\n  Give a valid token: SANDBOX_BROKER_TOKEN, --token-file, or a context (sandbox-broker config context).\n"},
		"something else entirely":         {404, `<html>`, nil, 3, "", "sandbox-broker: the broker answered 404 Not Found\n"},
	} {
		t.Run(name, func(t *testing.T) {
			startCanned(t, test.status, test.answer)
			got := runExec(t, "1", append(test.args, "-")...)
			assert.DeepEqual(t, got.out, test.out)
			assert.DeepEqual(t, got.err, test.stderr)
			assert.Equal(t, got.code, test.code)
		})
	}
}

func TestExecWithoutABroker(t *testing.T) {
	b := startCanned(t, 200, "")
	b.Close()
	got := runExec(t, "1", "-")
	assert.Equal(t, got.code, 3)
	assert.Check(t, cmp.Contains(got.err, "no broker answers"))

	startCanned(t, 200, "hello")
	got = runExec(t, "1", "-")
	assert.Equal(t, got.code, 3)
	assert.Check(t, cmp.Contains(got.err, "is no sandbox broker"))
}
