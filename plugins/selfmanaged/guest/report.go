package guest

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/frames"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// eventSender is the part of a gRPC stream that an execution needs.
type eventSender interface {
	Send(*guestv1.ExecuteResponse) error
}

// report sends what an execution produces, up to its limits.
type report struct {
	outputLimit int64
	artifacts   *providerv1.ArtifactLimits // nil for none
	before      artifacts.Snapshot

	mu        sync.Mutex // a gRPC stream takes one sender at a time
	stream    eventSender
	written   [2]int64 // bytes of stdout and stderr
	truncated bool
	calls     bool // main will be called; else there is no result
	results   int
	result    []byte
	verdict   verdict
	sent      int32 // artifacts
	sentBytes int64
	group     int32 // the highest one that was used
}

// newReport begins an execution: what lies in artifacts/ now is not its own.
func newReport(stream eventSender, req *guestv1.ExecuteRequest) *report {
	r := &report{outputLimit: req.GetOutputLimit(), artifacts: req.GetArtifacts(), stream: stream, calls: req.Arguments != nil}
	if r.artifacts != nil {
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
	event := &guestv1.ExecuteResponse{Event: &guestv1.ExecuteResponse_Stdout{Stdout: append([]byte(nil), p...)}}
	if stream == stderr {
		event.Event = &guestv1.ExecuteResponse_Stderr{Stderr: append([]byte(nil), p...)}
	}
	_ = r.stream.Send(event)
}

// wants says whether the data of a frame is worth reading.
func (r *report) wants(f frames.Frame) bool {
	switch f.Kind {
	case frames.Verdict:
		return f.Length <= maxVerdict
	case frames.Value:
		return f.Length <= r.outputLimit
	case frames.Result, frames.Display:
		return r.artifacts != nil && f.Length <= r.artifacts.GetMaxBytes()
	default:
		return false
	}
}

// maxVerdict bounds what the code policy has to say.
const maxVerdict = 1 << 20

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
	_ = r.stream.Send(&guestv1.ExecuteResponse{Event: &guestv1.ExecuteResponse_Artifact{Artifact: a}})
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
func (r *report) finish(result *guestv1.ExecuteResult) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	result.Truncated = r.truncated
	result.Findings = findingsToWire(r.verdict.Findings)
	if r.verdict.Blocked {
		result.Outcome, result.ExitCode = guestv1.ExecuteResult_OUTCOME_BLOCKED, exitBlocked
	}
	// What failed or was stopped has returned nothing, whatever it wrote; nor has
	// what was never called.
	if r.calls && result.GetOutcome() == guestv1.ExecuteResult_OUTCOME_EXITED && result.GetExitCode() == 0 {
		result.Result = r.result
	}
	return r.stream.Send(&guestv1.ExecuteResponse{Event: &guestv1.ExecuteResponse_Result{Result: result}})
}
