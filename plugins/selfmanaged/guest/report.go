package guest

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/files"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/frames"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
	"google.golang.org/grpc/metadata"
)

// eventSender is the part of a gRPC stream that a report needs.
type eventSender interface {
	Send(event *providerv1.ExecuteResponse) error
}

// executionStream is the answer to Execute. Its header says that the interpreter has the
// code, or that it gets none: the time limit counts from there.
type executionStream interface {
	eventSender
	SendHeader(header metadata.MD) error
}

// byItself is the status of code whose interpreter ended by itself, or by a signal of its
// own, until inWords makes one of the SDK's of it.
const byItself sdk.Status = ""

// report sends what an execution produces, up to its limits.
type report struct {
	outputLimit int64
	timeout     time.Duration
	artifacts   *providerv1.ArtifactLimits // nil for none
	before      artifacts.Snapshot

	mu         sync.Mutex // a gRPC stream takes one sender at a time
	stream     eventSender
	written    [2]int64 // bytes of stdout and stderr
	truncated  bool
	calls      bool // main will be called; else there is no result
	results    int
	result     []byte
	inspection inspection
	sent       int32 // artifacts
	sentBytes  int64
	group      int32 // the highest one that was used
}

// newReport begins an execution: artifacts/ is there, and what lies in it now is not the
// execution's own.
func newReport(stream eventSender, req *providerv1.ExecuteRequest) *report {
	r := &report{outputLimit: req.GetOutputLimit(), timeout: req.GetTimeout().AsDuration(), artifacts: req.GetArtifacts(), stream: stream, calls: req.Arguments != nil}
	made := artifacts.Make(isolation.WorkspaceDir, files.AsUser)
	if r.artifacts != nil && !made {
		r.before = artifacts.Take(isolation.WorkspaceDir)
	}
	return r
}

// Indices of report.written.
const (
	stdout = iota
	stderr
)

// output sends what the code printed. Errors mean that the call is over, which
// its context tells.
func (r *report) output(stream int, p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := r.outputLimit - r.written[stream]
	r.written[stream] += int64(len(p))
	if int64(len(p)) > room {
		p, r.truncated = p[:max(room, 0)], true
	}
	if len(p) == 0 {
		return
	}
	event := &providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Stdout{Stdout: append([]byte(nil), p...)}}
	if stream == stderr {
		event.Event = &providerv1.ExecuteResponse_Stderr{Stderr: append([]byte(nil), p...)}
	}
	_ = r.stream.Send(event)
}

// wants says whether the data of a frame is worth reading.
func (r *report) wants(f frames.Frame) bool {
	switch f.Kind {
	case frames.Inspection:
		return f.Length <= maxInspection
	case frames.Value:
		return f.Length <= r.outputLimit
	case frames.Result, frames.Display:
		return r.artifacts != nil && f.Length <= r.artifacts.GetMaxBytes()
	default:
		return false
	}
}

// maxInspection bounds what the code policy has to say.
const maxInspection = 1 << 20

// take deals with a frame of the runner.
func (r *report) take(f frames.Frame) {
	switch f.Kind {
	case frames.Value:
		r.mu.Lock()
		defer r.mu.Unlock()
		// Who sends two forges one of them.
		if r.results++; r.results == 1 && json.Valid(f.Data) {
			r.result = f.Data
		} else {
			r.result = nil
		}
	case frames.Result, frames.Display:
		a := &providerv1.Artifact{Kind: f.Kind, MimeType: f.MIMEType, Data: f.Data, Size: max(f.Size, f.Length), Group: f.Group, Refused: f.Refused}
		switch {
		case f.Data == nil && a.Refused == "":
			a.Refused = r.tooLarge()
		case a.Refused != "":
			a.Data = nil
		}
		a.Refused = validtext.Clip(a.Refused, maxArtifactText)
		if a.MimeType == "" || len(a.MimeType) > maxArtifactText || a.Group < 1 || a.Group > maxGroup {
			return // the runner makes no such thing
		}
		r.artifact(a)
	}
}

// Bounds on what a runner may say of an artifact.
const (
	maxArtifactText = 200
	maxArtifactName = 4 << 10 // of a file: as long as a path can be
	maxGroup        = 1 << 20
)

func (r *report) tooLarge() string {
	return fmt.Sprintf("larger than %d bytes", r.artifacts.GetMaxBytes())
}

// artifact sends an artifact, as long as there is room.
func (r *report) artifact(a *providerv1.Artifact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.artifacts == nil || r.sent > r.artifacts.GetMaxCount():
		return
	case r.sent == r.artifacts.GetMaxCount():
		a = &providerv1.Artifact{Kind: a.GetKind(), Group: a.GetGroup(), Refused: fmt.Sprintf("more than %d artifacts: the rest is left out", r.sent)}
	case r.sentBytes+int64(len(a.GetData())) > r.artifacts.GetMaxTotalBytes():
		a.Data, a.Refused = nil, fmt.Sprintf("more than %d bytes with the artifacts before it", r.artifacts.GetMaxTotalBytes())
	}
	r.sent++
	r.sentBytes += int64(len(a.GetData()))
	r.group = max(r.group, a.GetGroup())
	_ = r.stream.Send(&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Artifact{Artifact: a}})
}

// files sends the files that were asked for and those that the execution wrote
// into artifacts/.
func (r *report) files() {
	if r.artifacts == nil {
		return
	}
	seen := map[string]bool{}
	for _, pattern := range r.artifacts.GetFiles() {
		names, err := artifacts.Find(isolation.WorkspaceDir, pattern, int(r.artifacts.GetMaxCount())+1)
		if err != nil {
			r.file(&providerv1.Artifact{Name: pattern, Refused: err.Error()})
		}
		for _, name := range names {
			if !seen[name] {
				seen[name] = true
				r.readFile(name)
			}
		}
	}
	for _, name := range r.before.Changed(isolation.WorkspaceDir) {
		if !seen[name] {
			r.readFile(name)
		}
	}
}

func (r *report) readFile(name string) {
	if r.sent > r.artifacts.GetMaxCount() {
		return
	}
	f, err := artifacts.Read(isolation.WorkspaceDir, name, r.artifacts.GetMaxBytes())
	a := &providerv1.Artifact{Name: validtext.Clip(name, maxArtifactName), MimeType: f.MIMEType, Data: f.Data, Size: f.Size}
	if err != nil {
		a.Refused = err.Error()
	}
	r.file(a)
}

func (r *report) file(a *providerv1.Artifact) {
	a.Kind, a.Group = kindFile, min(r.group+1, maxGroup)
	r.artifact(a)
}

// kindFile is the SDK's name for this kind; frames has those of the others.
const kindFile = "file"

// finish sends the result, the last event.
func (r *report) finish(result sdk.ExecuteResult) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	result.Truncated = r.truncated
	result.Findings = r.inspection.findings()
	if r.inspection.Blocked {
		result.Status, result.ExitCode = sdk.StatusBlocked, exitBlocked
	}
	// What failed or was stopped has returned nothing, whatever it wrote; nor has
	// what was never called.
	if r.calls && result.Status == byItself && result.ExitCode == 0 {
		result.Result = r.result
	}
	return r.stream.Send(&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Result{Result: inWords(result, r.timeout)}})
}

// inWords says what became of the code, as agents read it.
func inWords(result sdk.ExecuteResult, timeout time.Duration) *providerv1.ExecuteResult {
	switch result.Status {
	case sdk.StatusTimeout:
		result.Detail = TimeoutDetail(timeout) + andThen(result.Detail)
	case sdk.StatusOutOfMemory:
		result.Detail = "the code used more memory than its sandbox has" + andThen(result.Detail)
	case sdk.StatusBlocked:
		result.Detail = blockedDetail(result.Findings)
	case sdk.StatusCancelled:
		result.Detail = "the execution was interrupted" + andThen(result.Detail)
	case byItself:
		result.Status = sdk.StatusFailed
		if result.ExitCode == 0 {
			result.Status = sdk.StatusSucceeded
		}
	}
	return wire.EncodeResult(result)
}

// blockedDetail names what stands first in the code.
func blockedDetail(findings []sdk.Finding) string {
	if len(findings) == 0 {
		return "the code policy refuses the code"
	}
	f := findings[0]
	detail := fmt.Sprintf("line %d: %s (rule %s)", f.Line, f.Message, f.Rule)
	switch more := len(findings) - 1; {
	case more == 1:
		detail += ", and one more finding"
	case more > 1:
		detail += fmt.Sprintf(", and %d more findings", more)
	}
	return detail
}

// TimeoutDetail says that code ran into its time limit.
func TimeoutDetail(timeout time.Duration) string {
	return fmt.Sprintf("the code was stopped at its time limit of %s", timeout)
}
