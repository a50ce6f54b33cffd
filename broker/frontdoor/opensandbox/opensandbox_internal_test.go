package opensandbox

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
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

func TestTheDirectoryAsAWordOfTheShell(t *testing.T) {
	for cwd, want := range map[string]string{
		"":          "",
		"/tmp":      "",
		"~other/x":  "",
		"/a$/b$1":   "",
		"/a~":       "",
		"~":         "~",
		"~/it's":    `~/'it'\''s'`,
		"$A/${B}/c": `"${A?}"'/'"${B?}"'/c'`,
		"~/$A":      `~/"${A?}"`,
		"/x/$A;`b`": "'/x/'\"${A?}\"';`b`'",
	} {
		assert.Check(t, is.Equal(directoryWord(cwd), want), cwd)
	}
}

func TestTheFormOfACommand(t *testing.T) {
	one, zero := int64(1), int64(0)
	for name, test := range map[string]struct {
		body  commandBody
		argv  []string
		fault string
	}{
		"of the shell":                       {commandBody{Command: "ls"}, []string{"bash", "-c", "ls"}, ""},
		"of the shell, in the background":    {commandBody{Command: "ls", Background: true}, []string{"bash", "-c", bothStreams + "ls"}, ""},
		"without a shell":                    {commandBody{Argv: []string{"ls", "-l"}}, []string{"ls", "-l"}, ""},
		"without one, in the background":     {commandBody{Argv: []string{"ls", "-l"}, Background: true}, []string{"bash", "-c", passOn, "bash", "ls", "-l"}, ""},
		"of the shell, as in the background": {commandBody{Command: "exec 2>&1\nls"}, []string{"bash", "-c", "exec 2>&1\nls"}, ""},
		"another program's -c":               {commandBody{Argv: []string{"python3", "-c", "1"}}, []string{"python3", "-c", "1"}, ""},
		"neither":                            {commandBody{}, nil, "command"},
		"both":                               {commandBody{Command: "ls", Argv: []string{"ls"}}, nil, "command"},
		"no program":                         {commandBody{Argv: []string{"", "x"}}, nil, "argv"},
		"another user":                       {commandBody{Command: "ls", UID: &one}, nil, "uid"},
		"a time of nothing":                  {commandBody{Command: "ls", TimeoutMS: &zero}, nil, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := test.body.request()
			if test.fault != "" {
				assert.Check(t, is.Equal(fieldOf(err), test.fault))
				return
			}
			assert.NilError(t, err)
			assert.Check(t, is.DeepEqual(req.Argv, test.argv))
			want := test.body.Command
			if want == "" {
				want = strings.Join(test.body.Argv, " ")
			}
			shown := sdk.Command{Argv: req.Argv}
			assert.Check(t, is.Equal(contentOf(shown), want), "as its caller wrote it")
			assert.Check(t, is.Equal(inBackground(shown), test.body.Background))
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
		`,"networkPolicy":{"defaultAction":"deny","egress":[{"action":"allow","target":"x.org"}]}`: "networkPolicy.egress",
		`,"networkPolicy":{"defaultAction":"deny","mode":"strict"}`:                                "networkPolicy.mode",
		`,"networkPolicy":{"egress":[{"action":"allow","target":"x.org","port":1}]}`:               "networkPolicy.egress.port",
		`,"image":{"uri":"python:3.12","digest":"sha256:1"}`:                                       "image.digest",
		`,"image":{"uri":"python:3.12","digest":""}`:                                               "",
		`,"platform":{"os":"linux","variant":"v8"}`:                                                "platform.variant",
		`,"entrypoint":["/opt/opensandbox/code-interpreter.sh"]`:                                   "",
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
		req, err := d.readCreate([]byte("{"+usual+more+"}"), tenant.Tenant{}, settings)
		assert.Check(t, is.Equal(fieldOf(err), fault), more)
		if fault == "" {
			assert.Check(t, is.Nil(err), more)
			started := strings.Contains(more, `["a","b"]`)
			assert.Check(t, is.Equal(req.entrypoint != nil, started), more)
			assert.Check(t, req.instance.Fixed && req.instance.Template == "py" && req.instance.FrontDoor == Name, more)
		}
	}
	_, err := d.readCreate([]byte(`[]`), tenant.Tenant{}, settings)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
}

func TestAPolicyOfTheNetwork(t *testing.T) {
	allowed := &sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "*.example.com", Private: true}, {Host: "api.example.org", Methods: []string{"GET"}}}}
	none := &network.Request{None: true}
	for name, test := range map[string]struct {
		network, policy string
		want            *network.Request
		field           string
	}{
		"what holds":                    {config.NetworkDeny, `{"defaultAction":"deny","egress":[]}`, nil, ""},
		"what an empty one means":       {config.NetworkDeny, `{}`, nil, ""},
		"what does not hold":            {config.NetworkDeny, `{"defaultAction":"allow"}`, nil, "networkPolicy"},
		"more than holds":               {config.NetworkDeny, `{"egress":[{"action":"allow","target":"a.example.com"}]}`, nil, "networkPolicy.egress"},
		"all, which holds":              {config.NetworkAllow, `{"defaultAction":"allow"}`, nil, ""},
		"an empty one, which is less":   {config.NetworkAllow, `{}`, none, ""},
		"all but a host":                {config.NetworkAllow, `{"defaultAction":"allow","egress":[{"action":"deny","target":"x.org"}]}`, nil, "networkPolicy"},
		"none, where nobody promises":   {"", `null`, nil, ""},
		"empty, where nobody promises":  {"", `{"egress":[]}`, nil, ""},
		"deny, where nobody promises":   {"", `{"defaultAction":"deny"}`, none, ""},
		"allow, where nobody promises":  {"", `{"defaultAction":"allow"}`, nil, "networkPolicy"},
		"a rule that says nothing more": {"", `{"egress":[{"action":"deny","target":"x.org"}]}`, none, ""},
		"hosts of the tenant's": {"", `{"egress":[{"action":"allow","target":"A.example.com."},{"action":"allow","target":"a.example.com"},{"action":"allow","target":"api.example.org"}]}`, &network.Request{
			Rules: []sdk.NetworkRule{{Host: "a.example.com"}, {Host: "api.example.org", Methods: []string{"GET"}}},
		}, ""},
		"the first rule for a host":   {"", `{"egress":[{"action":"deny","target":"a.example.com"},{"action":"allow","target":"a.example.com"}]}`, none, ""},
		"a host that is not allowed":  {"", `{"egress":[{"action":"allow","target":"a.example.com"},{"action":"allow","target":"evil.example"}]}`, nil, "networkPolicy.egress.1"},
		"a part of what is allowed":   {"", `{"egress":[{"action":"allow","target":"*.example.com"},{"action":"deny","target":"b.example.com"}]}`, nil, "networkPolicy.egress.1"},
		"everything by a star":        {"", `{"egress":[{"action":"allow","target":"*"}]}`, nil, "networkPolicy.egress.0.target"},
		"a block of addresses":        {"", `{"egress":[{"action":"allow","target":"10.0.0.0/8"}]}`, nil, "networkPolicy.egress.0.target"},
		"an action that there is not": {"", `{"egress":[{"action":"log","target":"a.example.com"}]}`, nil, "networkPolicy.egress.0.action"},
		"a default that there is not": {"", `{"defaultAction":"log"}`, nil, "networkPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := frontdoor.Settings{Images: map[string]string{"python:3.12": ""}, Network: test.network}
			got, err := (&Door{}).readCreate([]byte(`{"image":{"uri":"python:3.12"},"networkPolicy":`+test.policy+`}`), tenant.Tenant{Network: allowed}, settings)
			assert.Equal(t, fieldOf(err), test.field, "%v", err)
			if test.field == "" {
				assert.NilError(t, err)
				assert.DeepEqual(t, got.instance.Network, test.want)
			}
		})
	}
}

// heard is what events come of pieces of a command's output.
func heard(t *testing.T, ended sdk.Command, pieces ...sdk.CommandOutput) (texts []string, lost int64) {
	t.Helper()
	h := newHeardCommand(func(e event) error {
		texts = append(texts, e.Type+" "+e.Text)
		return nil
	})
	for _, piece := range pieces {
		assert.NilError(t, h.take(piece))
	}
	assert.NilError(t, h.end(ended))
	return texts, h.lost
}

func TestAGapInTheOutputEndsALine(t *testing.T) {
	out := func(offset int64, text string) sdk.CommandOutput {
		return sdk.CommandOutput{Stream: sdk.Stdout, Offset: offset, Data: []byte(text)}
	}
	for name, test := range map[string]struct {
		pieces []sdk.CommandOutput
		ended  sdk.Command
		want   []string
		lost   int64
	}{
		"none":                      {[]sdk.CommandOutput{out(0, "ab"), out(2, "c\n")}, sdk.Command{StdoutBytes: 4}, []string{"stdout abc"}, 0},
		"within a line":             {[]sdk.CommandOutput{out(0, "ab"), out(9, "c\nd\n")}, sdk.Command{StdoutBytes: 13}, []string{"stdout ab", "stdout c", "stdout d"}, 7},
		"behind a carriage return":  {[]sdk.CommandOutput{out(0, "ab\r"), out(9, "\nc\n")}, sdk.Command{StdoutBytes: 12}, []string{"stdout ab", "stdout \n", "stdout c"}, 6},
		"at the beginning":          {[]sdk.CommandOutput{out(3, "c\n")}, sdk.Command{StdoutBytes: 5}, []string{"stdout c"}, 3},
		"at the end":                {[]sdk.CommandOutput{out(0, "a")}, sdk.Command{StdoutBytes: 5}, []string{"stdout a"}, 4},
		"of the other stream alone": {[]sdk.CommandOutput{out(0, "a"), {Stream: sdk.Stderr, Offset: 2, Data: []byte("x")}, out(1, "b")}, sdk.Command{StdoutBytes: 2, StderrBytes: 3}, []string{"stdout ab", "stderr x"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			texts, lost := heard(t, test.ended, test.pieces...)
			assert.Check(t, is.DeepEqual(texts, test.want))
			assert.Check(t, is.Equal(lost, test.lost))
		})
	}
}

func TestAContextHasOneCellByWhateverName(t *testing.T) {
	r := running{}
	info := instance.Info{ID: instance.ID{Instance: "s"}}
	at := cellOf(info, instance.ExecuteRequest{Language: "python", Context: instance.DefaultContext})
	assert.Assert(t, r.enter(at))
	assert.Equal(t, r.begun(at, "x1"), 1)
	assert.Equal(t, r.begun(at, "x1"), 1, "it was told once more")
	info.Contexts = map[string]string{"python": "c1"}
	assert.Assert(t, !r.enter(cellOf(info, instance.ExecuteRequest{ContextID: "c1"})), "it is busy")
	for id, want := range map[string]string{"c1": "x1", "x1": "x1", "c2": "", "": ""} {
		execution, _ := r.find(info, id)
		assert.Check(t, is.Equal(execution, want), id)
	}
	r.leave(at)
	assert.Assert(t, r.enter(at))
	assert.Equal(t, r.begun(at, "x2"), 2)
	r.forget(info, "c1")
	r.leave(at)
	assert.Assert(t, r.enter(at))
	assert.Equal(t, r.begun(at, "x3"), 1, "another context has its place")
}

// executing is a service that runs nothing, and remembers what it was asked for.
type executing struct {
	Instances
	asked instance.ExecuteRequest
}

func (*executing) Named(_ context.Context, name string) (instance.Info, error) {
	return instance.Info{ID: instance.ID{Instance: name}, FrontDoor: Name}, nil
}

func (e *executing) Execute(_ context.Context, _ tenant.Tenant, _ string, req instance.ExecuteRequest) (instance.Execution, error) {
	e.asked = req
	return instance.Execution{Result: sdk.ExecuteResult{Status: sdk.StatusSucceeded}}, nil
}

func TestCodeWaitsForItsTurnAsTheDoorSays(t *testing.T) {
	service := &executing{}
	d := &Door{instances: service}
	d.settings.Store(&frontdoor.Settings{Wait: 7 * time.Second})
	call := rest.Call[rest.Raw]{Path: map[string]string{"id": "s"}, Body: rest.Raw(`{"code": "1", "context": {"language": "python"}}`)}
	assert.NilError(t, execd{d}.runCode(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil), call))
	assert.Equal(t, service.asked.Wait, 7*time.Second)
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
		name, value, traceback := lending.FailureOf(instance.Execution{Result: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}}, printed)
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
				_, err := io.Copy(&got, iotest.OneByteReader(frontdoor.NewLines(from, test.first-1, test.count)))
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
	assert.DeepEqual(t, metricsOf(now, lending.CPUPercent(before, now)), metrics{CPUs: 2, CPUPercent: 25, MemoryTotal: 1024, MemoryUsed: 1, Timestamp: at.UnixMilli() + 1000})
	assert.Equal(t, lending.CPUPercent(now, before), 0.0, "after a restart the count begins anew")
}
