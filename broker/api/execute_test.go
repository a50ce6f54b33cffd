package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// answers makes the provider's executions end with this result.
func (f *fixture) answers(result sdk.ExecuteResult, stdout, stderr string) {
	f.provider.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		_ = out.Stdout([]byte(stdout))
		_ = out.Stderr([]byte(stderr))
		return result, nil
	}
}

func TestExecuteAnswersWhatBecameOfTheCode(t *testing.T) {
	f := start(t)
	f.answers(sdk.ExecuteResult{
		Status: sdk.StatusSucceeded, Duration: 12345678 * time.Nanosecond, PeakMemoryBytes: 3 << 19,
		Result: []byte(`{"message":  "Hello <World>!", "big": 12345678901234567890, "nothing": null}`),
	}, "out\n", "err\n")
	resp := f.do(http.MethodPost, "/api/v1/execute", `{"code":"def main(name): ...","language":"PY","arguments":{"name": "World",  "n": 1e2},"timeout":2.5,"env":{"A":"b"}}`)
	resp.wants(http.StatusOK)
	// Byte for byte, spaces and big numbers included.
	assert.Check(t, cmp.Contains(resp.text, `"result":{"message":  "Hello <World>!", "big": 12345678901234567890, "nothing": null}}`))
	var e client.Execution
	resp.decode(&e)
	assert.Equal(t, e.Status, "succeeded")
	assert.Equal(t, e.Stdout, "out\n")
	assert.Equal(t, e.Stderr, "err\n")
	assert.Equal(t, e.ExecutionTime, 0.012346)
	assert.Equal(t, e.MemoryUsedMB, 1.5)
	assert.Equal(t, e.Provider, "first")
	assert.Check(t, e.Error == nil)

	ran := f.provider.Executions()[0]
	assert.Equal(t, ran.Language, sdk.Python)
	assert.Equal(t, string(ran.Arguments), `{"name": "World",  "n": 1e2}`)
	assert.Equal(t, ran.Timeout, 2500*time.Millisecond)
	assert.DeepEqual(t, ran.Env, map[string]string{"A": "b"})
}

func TestArgumentsAbsentEmptyAndNull(t *testing.T) {
	f := start(t)
	for body, want := range map[string]string{
		`{"code":"1","language":"python"}`:                                      "",
		`{"code":"1","language":"python","arguments":null}`:                     "",
		`{"code":"1","language":"python","arguments":{}}`:                       "{}",
		`{"code":"1","language":"python","arguments":{ } }`:                     "{ }",
		`{"code":"1","language":"python","arguments":{"a":[{"b":null,"b":1}]}}`: `{"a":[{"b":null,"b":1}]}`,
	} {
		f.do(http.MethodPost, "/api/v1/execute", body).wants(http.StatusOK)
		executions := f.provider.Executions()
		ran := executions[len(executions)-1]
		assert.Equal(t, string(ran.Arguments), want, body)
		assert.Equal(t, ran.Arguments == nil, want == "", body)
	}
}

func TestEveryStatusAnswers200(t *testing.T) {
	f := start(t)
	for status, code := range map[sdk.Status]string{
		sdk.StatusSucceeded: "", sdk.StatusFailed: "", sdk.StatusCancelled: "",
		sdk.StatusTimeout: "SB005", sdk.StatusOutOfMemory: "SB006", sdk.StatusBlocked: "SB007",
	} {
		f.answers(sdk.ExecuteResult{Status: status, ExitCode: 3, Detail: "why"}, "so far", "")
		var e client.Execution
		f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"js"}`).wants(http.StatusOK).decode(&e)
		assert.Equal(t, e.Status, string(status))
		assert.Equal(t, e.ExitCode, 3)
		assert.Equal(t, e.Stdout, "so far")
		assert.Equal(t, e.TimedOut, status == sdk.StatusTimeout)
		if code == "" {
			assert.Check(t, e.Error == nil)
		} else {
			assert.Equal(t, e.Error.Code, code)
			assert.Equal(t, e.Error.Detail, "why")
		}
	}
}

func TestFindingsComeWithTheExecution(t *testing.T) {
	f := start(t)
	f.answers(sdk.ExecuteResult{
		Status: sdk.StatusBlocked, Detail: "line 2: import of ctypes (rule python.import.ctypes)", ExitCode: 126,
		Findings: []sdk.Finding{{Line: 2, Column: 5, Rule: "python.import.ctypes", Message: "import of ctypes"}, {Rule: "python.call.eval", Message: "use of eval"}},
	}, "", "")
	answer := f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`).wants(http.StatusOK)
	assert.Assert(t, cmp.Contains(answer.text, `"findings":[{"line":2,"column":5,"rule":"python.import.ctypes","message":"import of ctypes"},{"rule":"python.call.eval","message":"use of eval"}]`))
	assert.Assert(t, cmp.Contains(answer.text, `"detail":"line 2: import of ctypes (rule python.import.ctypes)"`))
	f.answers(sdk.ExecuteResult{Status: sdk.StatusSucceeded}, "", "")
	answer = f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`).wants(http.StatusOK)
	assert.Assert(t, !strings.Contains(answer.text, "findings"))
}

func TestOutputThatIsNotUTF8(t *testing.T) {
	f := start(t)
	for name, test := range map[string]struct {
		out       string
		truncated bool
		shown     string
		exact     string
	}{
		"is shown with replacements, exact beside":         {"a\xff\xfeb", false, "a\uFFFDb", "a\xff\xfeb"},
		"half a character where output was cut is dropped": {"abc\xe2\x82", true, "abc", ""},
		"half a character otherwise is not":                {"abc\xe2\x82", false, "abc\uFFFD", "abc\xe2\x82"},
		"NUL and control bytes are text":                   {"\x00\x1b[1m€", true, "\x00\x1b[1m€", ""},
		"no output at all":                                 {"", true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f.answers(sdk.ExecuteResult{Status: sdk.StatusSucceeded, Truncated: test.truncated}, test.out, test.out)
			var e client.Execution
			f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"bash"}`).wants(http.StatusOK).decode(&e)
			assert.Equal(t, e.Stdout, test.shown)
			assert.Equal(t, e.Stderr, test.shown)
			assert.Equal(t, string(e.StdoutBase64), test.exact)
			assert.Equal(t, string(e.StderrBase64), test.exact)
		})
	}
}

func TestAResultThatIsNullIsThere(t *testing.T) {
	f := start(t)
	f.answers(sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: []byte("null")}, "", "")
	resp := f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`).wants(http.StatusOK)
	assert.Check(t, cmp.Contains(resp.text, `,"result":null}`))
	f.answers(sdk.ExecuteResult{Status: sdk.StatusSucceeded}, "", "")
	resp = f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`).wants(http.StatusOK)
	var fields map[string]any
	resp.decode(&fields)
	_, there := fields["result"]
	assert.Check(t, !there)
}

func TestTheLifeOfAnInstance(t *testing.T) {
	f := start(t)
	var made, same client.Instance
	f.do(http.MethodPost, "/api/v1/instances", `{"session_id":"s1","language":"node","ttl":60,"env":{"A":"b"}}`).wants(http.StatusCreated).decode(&made)
	assert.Equal(t, made.Template, "nodejs")
	assert.Equal(t, made.SessionID, "s1")
	assert.Equal(t, made.ExpiresAt.Sub(made.CreatedAt), time.Minute)
	assert.DeepEqual(t, f.provider.Created()[0].Env, map[string]string{"A": "b"})
	f.do(http.MethodPost, "/api/v1/instances", `{"session_id":"s1"}`).wants(http.StatusOK).decode(&same)
	assert.Equal(t, same.ID, made.ID)

	var list client.InstanceList
	f.do(http.MethodGet, "/api/v1/instances", "").wants(http.StatusOK).decode(&list)
	assert.Check(t, cmp.Len(list.Instances, 1))
	// The colons may be plain or escaped.
	for _, id := range []string{made.ID, escaped(made.ID)} {
		var got client.Instance
		f.do(http.MethodGet, "/api/v1/instances/"+id, "").wants(http.StatusOK).decode(&got)
		assert.Equal(t, got.ID, made.ID)
		var e client.Execution
		f.do(http.MethodPost, "/api/v1/instances/"+id+"/execute", `{"code":"1","language":"js"}`).wants(http.StatusOK).decode(&e)
		assert.Equal(t, e.InstanceID, made.ID)
	}
	resp := f.do(http.MethodDelete, "/api/v1/instances/"+escaped(made.ID), "").wants(http.StatusNoContent)
	assert.Equal(t, resp.text, "")
	f.do(http.MethodDelete, "/api/v1/instances/"+made.ID, "").problem(http.StatusNotFound, "SB013")
	f.do(http.MethodGet, "/api/v1/instances", "").wants(http.StatusOK).decode(&list)
	assert.Check(t, cmp.Len(list.Instances, 0))
}

func TestAnInstanceIsRenewed(t *testing.T) {
	f := start(t)
	var made, renewed client.Instance
	f.do(http.MethodPost, "/api/v1/instances", `{"session_id":"s1","ttl":60,"idle":30.5}`).wants(http.StatusCreated).decode(&made)
	assert.Equal(t, made.TTL, 60.0)
	assert.Equal(t, made.Idle, 30.5)
	for body, want := range map[string]time.Duration{
		"":               time.Minute,
		`{}`:             time.Minute,
		`{"ttl":null}`:   time.Minute,
		`{"ttl":3600.5}`: time.Hour + 500*time.Millisecond,
	} {
		for _, id := range []string{made.ID, escaped(made.ID)} {
			f.do(http.MethodPost, "/api/v1/instances/"+id+"/renew", body).wants(http.StatusOK).decode(&renewed)
			assert.Equal(t, renewed.ID, made.ID)
			assert.Equal(t, renewed.ExpiresAt.Sub(renewed.LastUsedAt), want, body)
			assert.Equal(t, renewed.TTL, 60.0)
		}
	}
	f.do(http.MethodPost, "/api/v1/instances/"+made.ID+"/renew", `{"ttl":1e300}`).wants(http.StatusOK).decode(&renewed)
	assert.Equal(t, renewed.ExpiresAt.Sub(made.CreatedAt), 24*time.Hour)

	for body, field := range map[string]string{`{"ttl":0}`: "ttl", `{"ttl":-1}`: "ttl", `{"ttl":"60"}`: "ttl", `{"idle":60}`: "idle"} {
		assert.Equal(t, f.do(http.MethodPost, "/api/v1/instances/"+made.ID+"/renew", body).problem(http.StatusUnprocessableEntity, "SB010").Field, field)
	}
	p := f.do(http.MethodPost, "/api/v1/instances", `{"session_id":"s1","ttl":61}`).problem(http.StatusConflict, "SB014")
	assert.Equal(t, p.Field, "ttl")
	p = f.do(http.MethodPost, "/api/v1/instances/acme:s1:aaaaaaaaaaaaaaaaaaaa/renew", "").problem(http.StatusNotFound, "SB013")
	assert.Check(t, cmp.Contains(p.Detail, "create a new one"))
}

func TestAnInstanceCanBeAskedForWithoutABody(t *testing.T) {
	f := start(t)
	f.do(http.MethodPost, "/api/v1/instances", "").wants(http.StatusCreated)
}

func TestAClientThatGoesAwayCancelsItsExecution(t *testing.T) {
	f := start(t)
	running, cancelled := make(chan struct{}), make(chan struct{})
	f.provider.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
		close(running)
		<-ctx.Done()
		close(cancelled)
		return sdk.ExecuteResult{}, ctx.Err()
	}
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		resp, err := f.client.Do(f.request(ctx, http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`))
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	<-running
	leave()
	assert.ErrorIs(t, <-done, context.Canceled)
	<-cancelled
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if len(f.provider.Live()) == 0 {
			return poll.Success()
		}
		return poll.Continue("the instance is still there")
	}, poll.WithTimeout(2*time.Minute))
}

func TestProviders(t *testing.T) {
	f := start(t)
	golden.Assert(t, f.do(http.MethodGet, "/api/v1/providers", "").wants(http.StatusOK).indented(), "providers.golden")
	var list client.ProviderList
	f.do(http.MethodGet, "/api/v1/providers", "", "Authorization: Bearer limited-token").wants(http.StatusOK).decode(&list)
	assert.Check(t, cmp.Len(list.Providers, 1))
	assert.Equal(t, list.Providers[0].ID, "second")
}
