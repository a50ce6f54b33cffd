package opensandbox

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// split is what events come of output that arrives in these pieces.
func split(t *testing.T, pieces ...string) []string {
	t.Helper()
	var texts []string
	l := &lines{kind: eventStdout, send: func(e event) error {
		assert.Equal(t, e.Type, eventStdout)
		texts = append(texts, e.Text)
		return nil
	}}
	for _, piece := range pieces {
		assert.NilError(t, l.write([]byte(piece)))
	}
	assert.NilError(t, l.end())
	return texts
}

func TestEachLineIsAnEvent(t *testing.T) {
	for name, test := range map[string]struct{ pieces, want []string }{
		"nothing":                          {nil, nil},
		"a line":                           {[]string{"a\n"}, []string{"a"}},
		"a line without an end":            {[]string{"a"}, []string{"a"}},
		"an empty line":                    {[]string{"a\n\nb\n"}, []string{"a", "\n", "b"}},
		"a line in pieces":                 {[]string{"a", "b", "\nc"}, []string{"ab", "c"}},
		"a carriage return ends a line":    {[]string{"1%\r2%\r"}, []string{"1%", "2%"}},
		"with a line feed it ends but one": {[]string{"a\r\nb\r", "\nc"}, []string{"a", "b", "c"}},
		"a character in pieces":            {[]string{"\xe2\x9c", "\x93\n"}, []string{"✓"}},
		"bytes that are no text":           {[]string{"a\xffb\n"}, []string{"a\uFFFDb"}},
	} {
		t.Run(name, func(t *testing.T) { assert.Check(t, is.DeepEqual(split(t, test.pieces...), test.want)) })
	}
	t.Run("a line that is too long is several", func(t *testing.T) {
		long := strings.Repeat("é", maxLine)
		texts := split(t, long[:5], long[5:], "\nend\n")
		assert.Equal(t, strings.Join(texts, ""), long+"end")
		for _, text := range texts {
			assert.Check(t, len(text) <= maxLine)
			assert.Check(t, !strings.Contains(text, "\uFFFD"))
		}
	})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\r\n\nb"), 2)
	f.Fuzz(func(t *testing.T, output []byte, at int) {
		at = max(0, min(at, len(output)))
		whole, cut := split(t, string(output)), split(t, string(output[:at]), string(output[at:]))
		assert.DeepEqual(t, whole, cut) // wherever it is cut, the same lines come
	})
}

func TestTheDirectoryOfACommand(t *testing.T) {
	envs := map[string]string{"A": "/tmp", "B": "x"}
	for cwd, want := range map[string]struct{ expanded, home, fault string }{
		"":          {},
		"/tmp":      {expanded: "/tmp"},
		"$A/${B}/c": {expanded: "/tmp/x/c"},
		"$C/x":      {fault: "cwd"},
		"~":         {home: "cd -- ~'' || exit\n"},
		"~/it's":    {home: `cd -- ~'/it'\''s' || exit` + "\n"},
		"~other/x":  {expanded: "~other/x"},
	} {
		expanded, home, err := expandCwd(cwd, envs)
		if want.fault != "" {
			assert.Check(t, is.ErrorContains(err, want.fault), cwd)
			continue
		}
		assert.Check(t, is.Nil(err), cwd)
		assert.Check(t, is.Equal(expanded, want.expanded), cwd)
		assert.Check(t, is.Equal(home, want.home), cwd)
	}
}

func TestTheFormOfACommand(t *testing.T) {
	one, zero := int64(1), int64(0)
	for name, test := range map[string]struct {
		body  commandBody
		argv  []string
		fault string
	}{
		"of the shell":                     {commandBody{Command: "ls"}, []string{"bash", "-c", "ls"}, ""},
		"of the shell, in the background":  {commandBody{Command: "ls", Background: true}, []string{"bash", "-c", "exec 2>&1\nls"}, ""},
		"without a shell":                  {commandBody{Argv: []string{"ls", "-l"}}, []string{"ls", "-l"}, ""},
		"without one, in the background":   {commandBody{Argv: []string{"ls", "-l"}, Background: true}, []string{"bash", "-c", "exec 2>&1\nexec \"$@\"", "bash", "ls", "-l"}, ""},
		"neither":                          {commandBody{}, nil, "command"},
		"both":                             {commandBody{Command: "ls", Argv: []string{"ls"}}, nil, "command"},
		"no program":                       {commandBody{Argv: []string{"", "x"}}, nil, "argv"},
		"another user":                     {commandBody{Command: "ls", UID: &one}, nil, "uid"},
		"a time of nothing":                {commandBody{Command: "ls", TimeoutMS: &zero}, nil, "timeout"},
		"a variable that nobody has named": {commandBody{Command: "ls", Cwd: "$NO"}, nil, "cwd"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := test.body.request()
			if test.fault != "" {
				assert.Check(t, is.Equal(fieldOf(err), test.fault))
				return
			}
			assert.NilError(t, err)
			assert.Check(t, is.DeepEqual(req.Argv, test.argv))
		})
	}
}

func fieldOf(err error) string {
	e, ok := err.(*sdk.Error) //nolint:errorlint // it is not wrapped
	if !ok {
		return ""
	}
	return e.Field
}

func TestWhatCannotBeHonouredIsRefusedByName(t *testing.T) {
	d := &Door{}
	settings := frontdoor.Settings{Images: map[string]string{"python:3.12": "py"}, Network: config.NetworkDeny}
	const usual = `"image":{"uri":"python:3.12"},"resourceLimits":{"cpu":"1","memory":"2Gi"},"entrypoint":["tail","-f","/dev/null"],"env":{},"secureAccess":false,"extensions":{}`
	for more, fault := range map[string]string{
		``:                                     "",
		`,"timeout":60`:                        "",
		`,"timeout":null`:                      "",
		`,"timeout":59`:                        "timeout",
		`,"timeout":1.5`:                       "timeout",
		`,"timeout":"60"`:                      "",
		`,"timeout":true`:                      "timeout",
		`,"timeout":99999999999999999999`:      "timeout",
		`,"env":{"A":null,"B":"x"}`:            "",
		`,"env":{"A":1}`:                       "env",
		`,"metadata":{"a":"b c"}`:              "metadata.a",
		`,"metadata":{"opensandbox.io/a":"b"}`: "metadata.opensandbox.io/a",
		`,"networkPolicy":{"defaultAction":"deny"}`:                                                "",
		`,"networkPolicy":{"defaultAction":"allow"}`:                                               "networkPolicy",
		`,"networkPolicy":{"defaultAction":"deny","egress":[{"action":"allow","target":"x.org"}]}`: "networkPolicy",
		`,"volumes":[]`:                                          "",
		`,"volumes":[{"name":"v"}]`:                              "volumes",
		`,"credentialProxy":{"enabled":false}`:                   "",
		`,"credentialProxy":{"enabled":true}`:                    "credentialProxy",
		`,"snapshotId":"s"`:                                      "snapshotId",
		`,"lifecycle":{"preStart":{}}`:                           "lifecycle",
		`,"resourceRequests":{"cpu":"1"}`:                        "resourceRequests",
		`,"resourceLimits":{"gpu":"1"}`:                          "resourceLimits.gpu",
		`,"resourceLimits":{"cpu":"lots"}`:                       "resourceLimits.cpu",
		`,"platform":{"os":"windows"}`:                           "platform",
		`,"entrypoint":[]`:                                       "entrypoint",
		`,"entrypoint":["a","b"]`:                                "",
		`,"image":{"uri":"other"}`:                               "image.uri",
		`,"image":{}`:                                            "image.uri",
		`,"image":{"uri":"python:3.12","auth":{"username":"u"}}`: "image.auth",
		`,"somethingNew":{"a":1}`:                                "somethingNew",
	} {
		req, err := d.readCreate([]byte("{"+usual+more+"}"), settings)
		assert.Check(t, is.Equal(fieldOf(err), fault), more)
		if fault == "" {
			assert.Check(t, is.Nil(err), more)
			assert.Check(t, req.instance.Fixed && req.instance.Template == "py" && req.instance.FrontDoor == Name, more)
		}
	}
	_, err := d.readCreate([]byte(`[]`), settings)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
}

func TestWhoseSandboxAPathIs(t *testing.T) {
	for target, want := range map[string]string{
		"/sandboxes/abc/proxy/44772/ping":   "abc",
		"/v1/sandboxes/abc/proxy/80?x=/y":   "abc",
		"/sandboxes/abc/proxy/44772":        "abc",
		"/v1/sandboxes/abc":                 "",
		"/v1/sandboxes/abc/endpoints/44772": "",
		"/x/sandboxes/abc/proxy/44772/ping": "",
		"sandboxes/abc/proxy/44772/ping":    "",
		"/v1/v1/sandboxes/abc/proxy/1/ping": "",
		"/sandboxes/abc/proxy2/44772/ping":  "",
	} {
		id, ok := sandboxOf(target)
		assert.Check(t, is.Equal(id, want), target)
		assert.Check(t, is.Equal(ok, want != ""), target)
	}
}

func TestATokenIsOfOneSandbox(t *testing.T) {
	a, b := newTokens([]byte("key")), newTokens([]byte("another"))
	one := instance.ID{Tenant: "acme", Session: "s", Instance: "x"}
	other := instance.ID{Tenant: "acme", Session: "s", Instance: "y"}
	assert.Check(t, a.belongs(a.of(one), one))
	assert.Check(t, !a.belongs(a.of(one), other))
	assert.Check(t, !a.belongs(b.of(one), one))
	assert.Check(t, !a.belongs("", one))
	assert.Check(t, is.Len(a.of(one), 40))
}

func TestTheExceptionInATraceback(t *testing.T) {
	for printed, want := range map[string][2]string{
		"Traceback (most recent call last):\n  File \"<cell 1>\", line 1, in <module>\nNameError: name 'nope' is not defined\n": {"NameError", "name 'nope' is not defined"},
		"Traceback (most recent call last):\n  x\njson.decoder.JSONDecodeError: Expecting value: line 1\n":                      {"json.decoder.JSONDecodeError", "Expecting value: line 1"},
		"Traceback (most recent call last):\n  x\nKeyboardInterrupt\n":                                                          {"KeyboardInterrupt", ""},
		"Uncaught TypeError: x is not a function\n    at REPL:1\n":                                                              {"TypeError", "x is not a function"},
		"what: it says\n": {"ExecutionError", "exit status 1"},
		"":                {"ExecutionError", "exit status 1"},
	} {
		name, value, traceback := failureOf(instance.Execution{Result: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}}, printed)
		assert.Check(t, is.DeepEqual([2]string{name, value}, want), printed)
		assert.Check(t, is.Equal(strings.Join(traceback, "\n"), strings.TrimRight(printed, "\n")))
	}
}

func TestSomeLinesOfAFile(t *testing.T) {
	for name, test := range map[string]struct {
		first, count int
		want         string
	}{
		"all":        {1, 100, "one\ntwo\nthree"},
		"the first":  {1, 1, "one\n"},
		"the middle": {2, 1, "two\n"},
		"the last":   {3, 5, "three"},
		"behind it":  {4, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, from := range []io.Reader{strings.NewReader("one\ntwo\nthree"), iotest.OneByteReader(strings.NewReader("one\ntwo\nthree"))} {
				var got bytes.Buffer
				_, err := io.Copy(&got, iotest.OneByteReader(newLineRange(from, test.first, test.count)))
				assert.NilError(t, err)
				assert.Check(t, is.Equal(got.String(), test.want))
			}
		})
	}
}

func TestModesHaveOctalDigits(t *testing.T) {
	for digits, want := range map[int]int{755: 0o755, 640: 0o640, 0: 0, 777: 0o777} {
		mode, err := modeOf(digits)
		assert.NilError(t, err)
		assert.Check(t, is.Equal(int(mode), want))
		assert.Check(t, is.Equal(decimalMode(mode), digits))
	}
	for _, digits := range []int{758, -1, 1000, 1 << 40} {
		_, err := modeOf(digits)
		assert.Check(t, is.Equal(fieldOf(err), "mode"))
	}
}

func TestProcessorsAreKnownByTwoLooks(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	before := sdk.InstanceMetrics{MeasuredAt: at, CPUTime: time.Second, CPULimit: 2, Memory: 1 << 20, MemoryLimit: 1 << 30}
	now := before
	now.MeasuredAt, now.CPUTime = at.Add(time.Second), 1500*time.Millisecond
	assert.DeepEqual(t, metricsBetween(before, now), metrics{CPUs: 2, CPUPercent: 25, MemoryTotal: 1024, MemoryUsed: 1, Timestamp: at.UnixMilli() + 1000})
	assert.Equal(t, metricsBetween(now, before).CPUPercent, 0.0, "after a restart the count begins anew")
}
