package guest

import (
	"encoding/json"

	"github.com/sandbox-broker/sandbox-broker/sdk/program/bash"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// runnerRequest is what the runners read, on one line.
type runnerRequest struct {
	Code        string            `json:"code"`
	Arguments   *json.RawMessage  `json:"arguments"`
	Env         map[string]string `json:"env"`
	CallMain    bool              `json:"call_main"` // JavaScript: defined and not used by the code itself
	ResultLimit int64             `json:"result_limit"`
	Artifacts   *runnerArtifacts  `json:"artifacts"`
	// Execution counts the executions of a context.
	Execution int64    `json:"execution"`
	Renewal   *renewal `json:"renewal,omitempty"` // of a context
}

// runnerArtifacts bounds what a runner sends; the guest does so again.
type runnerArtifacts struct {
	MaxCount      int32 `json:"max_count"`
	MaxBytes      int64 `json:"max_bytes"`
	MaxTotalBytes int64 `json:"max_total_bytes"`
}

// requestPayload is what an interpreter reads from its request descriptor.
func requestPayload(req *providerv1.ExecuteRequest, callMain bool) ([]byte, error) {
	if req.GetLanguage() == Bash {
		return []byte(bash.Script(req.GetEnv(), req.GetCode())), nil
	}
	r := newRunnerRequest(req)
	r.CallMain = callMain
	return line(r)
}

func newRunnerRequest(req *providerv1.ExecuteRequest) runnerRequest {
	r := runnerRequest{Code: req.GetCode(), Env: req.GetEnv(), ResultLimit: req.GetOutputLimit(), Artifacts: forRunner(req.GetArtifacts())}
	if req.Arguments != nil {
		raw := json.RawMessage(req.GetArguments())
		r.Arguments = &raw
	}
	return r
}

func forRunner(limits *providerv1.ArtifactLimits) *runnerArtifacts {
	if limits == nil {
		return nil
	}
	return &runnerArtifacts{MaxCount: limits.GetMaxCount(), MaxBytes: limits.GetMaxBytes(), MaxTotalBytes: limits.GetMaxTotalBytes()}
}

// line encodes a request. JSON has no line ends but between its tokens, where
// encoding/json writes none and takes out those of raw values.
func line(request any) ([]byte, error) {
	text, err := json.Marshal(request)
	return append(text, '\n'), err
}
