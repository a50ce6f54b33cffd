package ragflow

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestWhatBecameOfCodeInRAGFlowsWords(t *testing.T) {
	execution := func(r sdk.ExecuteResult) instance.Execution {
		r.Duration = 1500 * time.Microsecond
		return instance.Execution{Stdout: []byte("out\xff"), Stderr: []byte("err\n"), Result: r}
	}
	// The fields that every answer has, behind those that differ.
	const (
		rest   = `,"artifacts":[],"result":null`
		nobody = `"unauthorized_access_type":null,`
	)
	for _, test := range []struct {
		name, language string
		result         sdk.ExecuteResult
		want           string
	}{
		{
			"a result", languagePython,
			sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: json.RawMessage(`{"a":1}`), PeakMemoryBytes: 2048},
			`{"status":"success","stdout":"out�","stderr":"err\n","exit_code":0,"detail":null,"time_used_ms":1.5,"memory_used_kb":2,"resource_limit_type":null,` + nobody + `"runtime_error_type":null,"artifacts":[],"result":{"present":true,"value":{"a":1},"type":"json"}}`,
		},
		{
			"null is a result", languageNodeJS,
			sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: json.RawMessage(`null`)},
			`{"status":"success","stdout":"out�","stderr":"err\n","exit_code":0,"detail":null,"time_used_ms":1.5,"memory_used_kb":null,"resource_limit_type":null,` + nobody + `"runtime_error_type":null,"artifacts":[],"result":{"present":true,"value":null,"type":"json"}}`,
		},
		{
			"Python that returns nothing", languagePython,
			sdk.ExecuteResult{Status: sdk.StatusSucceeded},
			`{"status":"success","stdout":"out�","stderr":"err\n","exit_code":0,"detail":null,"time_used_ms":1.5,"memory_used_kb":null,"resource_limit_type":null,` + nobody + `"runtime_error_type":null` + rest + `}`,
		},
		{
			"JavaScript that returns nothing", languageNodeJS,
			sdk.ExecuteResult{Status: sdk.StatusSucceeded},
			`{"status":"program_error","stdout":"","stderr":"Error: main() must return a value. Use null for an empty result.","exit_code":1,"detail":null,"time_used_ms":1.5,"memory_used_kb":null,"resource_limit_type":null,` + nobody + `"runtime_error_type":"nonzero_exit"` + rest + `}`,
		},
		{
			"a failure", languagePython,
			sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 137},
			`{"status":"program_error","stdout":"","stderr":"err\n","exit_code":137,"detail":null,"time_used_ms":1.5,"memory_used_kb":null,"resource_limit_type":null,` + nobody + `"runtime_error_type":"nonzero_exit"` + rest + `}`,
		},
		{
			"its time is up", languagePython,
			sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: -1},
			`{"status":"resource_limit_exceeded","stdout":"","stderr":"Execution timeout","exit_code":-124,"detail":null,"time_used_ms":1.5,"memory_used_kb":null,"resource_limit_type":"time",` + nobody + `"runtime_error_type":null` + rest + `,"code":"SB005"}`,
		},
		{
			"out of memory", languagePython,
			sdk.ExecuteResult{Status: sdk.StatusOutOfMemory, ExitCode: -1},
			`{"status":"resource_limit_exceeded","stdout":"","stderr":"Memory limit exceeded (killed by OOM)","exit_code":-137,"detail":null,"time_used_ms":1.5,"memory_used_kb":null,"resource_limit_type":"memory",` + nobody + `"runtime_error_type":null` + rest + `,"code":"SB006"}`,
		},
		{
			"blocked", languagePython,
			sdk.ExecuteResult{Status: sdk.StatusBlocked, Findings: []sdk.Finding{{Line: 1, Message: "import of ctypes"}, {Line: 7, Message: "eval"}}},
			`{"status":"program_runner_error","stdout":"","stderr":"Line 1: import of ctypes\nLine 7: eval","exit_code":-999,"detail":"Code is unsafe","time_used_ms":null,"memory_used_kb":null,"resource_limit_type":null,` + nobody + `"runtime_error_type":null` + rest + `,"code":"SB007"}`,
		},
		{
			"cancelled", languagePython,
			sdk.ExecuteResult{Status: sdk.StatusCancelled, ExitCode: 130},
			`{"status":"program_error","stdout":"","stderr":"err\n","exit_code":130,"detail":null,"time_used_ms":1.5,"memory_used_kb":null,"resource_limit_type":null,` + nobody + `"runtime_error_type":"nonzero_exit"` + rest + `}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := json.Marshal(answerOf(execution(test.result), test.language))
			assert.NilError(t, err)
			assert.Equal(t, string(got), test.want)
		})
	}
}

func TestAFailureIsNeverWithoutAWord(t *testing.T) {
	a := answerOf(instance.Execution{Result: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1, Detail: "main returned a set"}}, languagePython)
	assert.Equal(t, a.Stderr, "main returned a set")
	a = answerOf(instance.Execution{Result: sdk.ExecuteResult{Status: sdk.StatusBlocked, Detail: "line 3: ctypes"}}, languagePython)
	assert.Equal(t, a.Stderr, "line 3: ctypes")
}

func TestTheArtifactsThatRAGFlowTakes(t *testing.T) {
	file := func(name string) sdk.Artifact {
		return sdk.Artifact{Kind: sdk.ArtifactFile, Name: name, Data: []byte("x"), Size: 1}
	}
	refused, empty, large := file("artifacts/refused.png"), file("artifacts/empty.png"), file("artifacts/large.png")
	refused.Refused, empty.Data, large.Data = "too large", nil, make([]byte, maxArtifactBytes+1)
	got := artifactsOf([]sdk.Artifact{
		file("artifacts/z.PNG"), file("artifacts/a.csv"), file("artifacts/a.exe"), file("artifacts/.hidden.png"),
		file("artifacts/below/b.png"), file("c.png"), file("artifacts/"), refused, empty, large,
	})
	assert.DeepEqual(t, got, []artifact{
		{Name: "a.csv", MIMEType: "text/csv", Size: 1, Content: []byte("x")},
		{Name: "z.PNG", MIMEType: "image/png", Size: 1, Content: []byte("x")},
	})
	var many []sdk.Artifact
	for c := 'a'; c <= 'z'; c++ {
		many = append(many, file("artifacts/"+string(c)+".json"))
	}
	assert.Check(t, is.Len(artifactsOf(many), maxArtifacts))
	assert.Check(t, artifactsOf(nil) != nil, "none is a list too")
}

func TestARefusalHasItsCodeAndABody(t *testing.T) {
	for _, info := range sdk.CodeTable() {
		t.Run(string(info.Code), func(t *testing.T) {
			p := problem(sdk.Errorf(info.Code, "the reason"), "r-1")
			body, err := json.Marshal(p.Body)
			assert.NilError(t, err)
			want, status := info.Code, info.HTTPStatus
			if status < 400 { // no refusal has such a code
				want, status = sdk.CodeInternal, 500
			}
			assert.Equal(t, p.Status, status)
			assert.Equal(t, p.MediaType, "application/json")
			assert.Check(t, is.Contains(string(body), `"code":"`+string(want)+`"`))
			assert.Check(t, is.Contains(string(body), `"request_id":"r-1"`))
			assert.Check(t, strings.Contains(string(body), `"detail":"`))
			assert.Equal(t, strings.Contains(string(body), "the reason"), want != sdk.CodeInternal)
		})
	}
}

func TestARunThatCannotBeServedIsRetriedByNoClient(t *testing.T) {
	for _, info := range sdk.CodeTable() {
		t.Run(string(info.Code), func(t *testing.T) {
			status, a, err := unserved(sdk.Errorf(info.Code, "the reason"), "r-1")
			switch info.Code {
			case sdk.CodeInvalidRequest, sdk.CodeNotAllowed, sdk.CodeNotAuthenticated, sdk.CodeConflict:
				assert.ErrorContains(t, err, "the reason")
				return
			case sdk.CodeQuotaExceeded:
				assert.Equal(t, a.ExitCode, exitBusy)
				assert.Equal(t, a.Stderr, "Container pool is busy")
				assert.Equal(t, *a.Detail, "no_available_container")
			default:
				assert.Equal(t, a.ExitCode, exitRunner)
				assert.Check(t, strings.HasPrefix(a.Stderr, string(a.Code)+": "), a.Stderr)
				assert.Equal(t, *a.Detail, "internal_error")
			}
			assert.NilError(t, err)
			assert.Equal(t, status, 200)
			assert.Equal(t, a.Status, statusRunner)
			assert.Equal(t, a.RequestID, "r-1")
		})
	}
}
