package provider_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// shown keeps artifacts too.
type shown struct {
	heard
	artifacts []sdk.Artifact
}

func (s *shown) Artifact(a sdk.Artifact) error {
	s.artifacts = append(s.artifacts, a)
	return nil
}

func TestWhateverFormTheAnswerOfAKernelHas(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	kernel, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	for _, test := range []struct {
		name, body     string
		status         sdk.Status
		exit           int
		stdout, stderr string
		artifacts      []sdk.Artifact
	}{
		{name: "output in pieces", body: `{"results":[{"type":"stdout","text":"a"},{"type":"stdout","text":"b\n"},{"type":"endOfExecution","status":"ok"}],"contextId":"x"}`, status: sdk.StatusSucceeded, stdout: "ab\n"},
		{name: "in an envelope", body: `{"code":"SUCCESS","data":{"results":[{"type":"stdout","text":"a"}]}}`, status: sdk.StatusSucceeded, stdout: "a"},
		{name: "warnings are no failure", body: `{"results":[{"type":"stderr","text":"careful\n"},{"type":"endOfExecution","status":"ok"}]}`, status: sdk.StatusSucceeded, stderr: "careful\n"},
		{name: "nothing", body: `{"results":[]}`, status: sdk.StatusSucceeded},
		{name: "an error as a text", body: `{"results":[{"type":"error","text":"Traceback\nValueError: bad"}]}`, status: sdk.StatusFailed, exit: 1, stderr: "Traceback\nValueError: bad\n"},
		{name: "an error by its name", body: `{"results":[{"type":"error","name":"ValueError","value":"bad"}]}`, status: sdk.StatusFailed, exit: 1, stderr: "ValueError: bad\n"},
		{name: "an error with a list of lines", body: `{"results":[{"type":"error","name":"ValueError","value":"bad","traceback":["\u001b[0;31mTraceback","ValueError: bad\u001b[0m"]}]}`, status: sdk.StatusFailed, exit: 1, stderr: "Traceback\nValueError: bad\n"},
		{name: "an exit code", body: `{"results":[{"type":"error","name":"SystemExit","value":"3"}]}`, status: sdk.StatusFailed, exit: 3},
		{name: "an exit code as a text", body: `{"results":[{"type":"error","text":"SystemExit: 4"}]}`, status: sdk.StatusFailed, exit: 4},
		{name: "an exit that is a success", body: `{"results":[{"type":"error","name":"SystemExit","value":"0"}]}`, status: sdk.StatusSucceeded},
		{name: "no memory", body: `{"results":[{"type":"error","name":"MemoryError","value":""}]}`, status: sdk.StatusOutOfMemory, exit: 1, stderr: "MemoryError: \n"},
		{name: "an end that is not ok", body: `{"results":[{"type":"endOfExecution","status":"error"}]}`, status: sdk.StatusFailed, exit: 1},
		{name: "what nobody knows", body: `{"results":[{"type":"progress","text":"50%"},{"type":"endOfExecution","status":"ok"}]}`, status: sdk.StatusSucceeded},
		{
			name: "a value as a text", body: `{"results":[{"type":"result","text":"42"}]}`, status: sdk.StatusSucceeded,
			artifacts: []sdk.Artifact{{Kind: sdk.ArtifactResult, MIMEType: "text/plain", Data: []byte("42"), Size: 2, Group: 1}},
		},
		{
			name: "a value in several forms", body: `{"results":[{"type":"result","data":{"text/plain":"<Figure>","image/png":"AAEC","application/json":{"a":1}},"executionCount":1}]}`, status: sdk.StatusSucceeded,
			artifacts: []sdk.Artifact{
				{Kind: sdk.ArtifactResult, MIMEType: "application/json", Data: []byte(`{"a":1}`), Size: 7, Group: 1},
				{Kind: sdk.ArtifactResult, MIMEType: "image/png", Data: []byte{0, 1, 2}, Size: 3, Group: 1},
				{Kind: sdk.ArtifactResult, MIMEType: "text/plain", Data: []byte("<Figure>"), Size: 8, Group: 1},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cloud.Fault(aliyunfake.Fault{Action: "ExecuteCode", Skip: 1, Status: 200, Body: test.body})
			out := &shown{}
			result, err := p.Execute(t.Context(), sdk.ExecuteRequest{
				InstanceID: id, ExecutionID: "x", ContextID: kernel.ID, Code: "pass", Timeout: 2 * time.Minute, OutputLimit: 1 << 20,
				Artifacts: &sdk.ArtifactLimits{MaxCount: 10, MaxBytes: 1 << 20, MaxTotalBytes: 1 << 20},
			}, out)
			assert.NilError(t, err)
			assert.Equal(t, result.Status, test.status)
			assert.Equal(t, result.ExitCode, test.exit)
			assert.Equal(t, out.stdout.String(), test.stdout)
			assert.Equal(t, out.stderr.String(), test.stderr)
			assert.DeepEqual(t, out.artifacts, test.artifacts)
		})
	}
}
