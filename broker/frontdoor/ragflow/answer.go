package ragflow

import (
	"bytes"
	"encoding/json"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// answer is RAGFlow's CodeExecutionResult. All its fields are there, whatever happened.
type answer struct {
	Status    string     `json:"status"`
	Stdout    string     `json:"stdout"`
	Stderr    string     `json:"stderr"`
	ExitCode  int        `json:"exit_code"`
	Detail    *string    `json:"detail"`
	TimeMS    *float64   `json:"time_used_ms"`
	MemoryKB  *float64   `json:"memory_used_kb"`
	Resource  *string    `json:"resource_limit_type"`
	Access    *string    `json:"unauthorized_access_type"`
	Runtime   *string    `json:"runtime_error_type"`
	Artifacts []artifact `json:"artifacts"`
	Result    *result    `json:"result"`
	// What follows is ours.
	Code      sdk.Code `json:"code,omitempty"`
	RequestID string   `json:"request_id,omitempty"`
}

type artifact struct {
	Name     string `json:"name"`
	MIMEType string `json:"mime_type"`
	Size     int64  `json:"size"`
	Content  []byte `json:"content_b64"`
}

// result is what main returned. The broker's own JSON of it is not read again.
type result struct {
	Present bool            `json:"present"`
	Value   json.RawMessage `json:"value"`
	Type    string          `json:"type"`
}

// The statuses that are answered.
const (
	statusSuccess  = "success"
	statusProgram  = "program_error"
	statusResource = "resource_limit_exceeded"
	statusRunner   = "program_runner_error"
)

// The exit codes of what is no end of a program.
const (
	exitTimeout = -124
	exitMemory  = -137
	exitUnsafe  = -999
	exitBusy    = -10
	exitRunner  = -3
	exitTooMany = -429
)

// noResult is what RAGFlow's runner for Node.js says of a main that returns undefined.
const noResult = "Error: main() must return a value. Use null for an empty result."

// answerOf puts what became of code into RAGFlow's words. What was printed is shown only
// of code that succeeded: with anything on stdout the client takes a failed run for one
// that has that as its result.
func answerOf(e instance.Execution, language string) answer {
	r := e.Result
	a := answer{Artifacts: []artifact{}, ExitCode: r.ExitCode, Code: r.Status.Code(), Stderr: validText(e.Stderr)}
	if r.Status.Code() == "" || r.Status == sdk.StatusTimeout || r.Status == sdk.StatusOutOfMemory {
		used := math.Round(float64(r.Duration)/float64(time.Millisecond)*1e3) / 1e3
		a.TimeMS = &used
	}
	if r.PeakMemoryBytes > 0 {
		kb := math.Round(float64(r.PeakMemoryBytes) / 1024)
		a.MemoryKB = &kb
	}
	switch {
	case r.Status == sdk.StatusTimeout:
		a.Status, a.Resource, a.ExitCode, a.Stderr = statusResource, word("time"), exitTimeout, "Execution timeout"
	case r.Status == sdk.StatusOutOfMemory:
		a.Status, a.Resource, a.ExitCode, a.Stderr = statusResource, word("memory"), exitMemory, "Memory limit exceeded (killed by OOM)"
	case r.Status == sdk.StatusBlocked:
		a.Status, a.ExitCode, a.Detail, a.Stderr = statusRunner, exitUnsafe, word("Code is unsafe"), findings(r)
	case r.Status == sdk.StatusSucceeded && r.Result == nil && language == languageNodeJS:
		a.Status, a.Runtime, a.ExitCode, a.Stderr = statusProgram, word("nonzero_exit"), 1, noResult
	case r.Status == sdk.StatusSucceeded:
		a.Status, a.ExitCode, a.Stdout = statusSuccess, 0, validText(e.Stdout)
		if r.Result != nil && json.Valid(r.Result) {
			a.Result = &result{Present: true, Value: bytes.ToValidUTF8(r.Result, []byte("\uFFFD")), Type: "json"}
		}
		a.Artifacts = artifactsOf(e.Artifacts)
	default: // it failed, or somebody cancelled it
		a.Status, a.Runtime = statusProgram, word("nonzero_exit")
		if a.Stderr == "" {
			a.Stderr = r.Detail // else a client shows nothing at all
		}
	}
	return a
}

func word(w string) *string { return &w }

func validText(output []byte) string { return strings.ToValidUTF8(string(output), "\uFFFD") }

// findings are what the policy for code has against it, a line each.
func findings(r sdk.ExecuteResult) string {
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, "Line "+strconv.Itoa(f.Line)+": "+f.Message)
	}
	if len(lines) == 0 {
		return r.Detail
	}
	return strings.Join(lines, "\n")
}

// Bounds of artifacts, which are RAGFlow's own.
const (
	maxArtifacts     = 10
	maxArtifactBytes = 10 << 20
)

var artifactTypes = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".svg": "image/svg+xml",
	".pdf": "application/pdf", ".csv": "text/csv", ".json": "application/json", ".html": "text/html",
}

// artifactsOf are the files right in artifacts/ that RAGFlow takes.
func artifactsOf(all []sdk.Artifact) []artifact {
	list := []artifact{}
	for _, a := range all {
		dir, name := path.Split(a.Name)
		mimeType, taken := artifactTypes[strings.ToLower(path.Ext(name))]
		if a.Kind != sdk.ArtifactFile || a.Refused != "" || dir != "artifacts/" || !taken || name[0] == '.' ||
			len(a.Data) == 0 || len(a.Data) > maxArtifactBytes {
			continue
		}
		list = append(list, artifact{Name: name, MIMEType: mimeType, Size: int64(len(a.Data)), Content: a.Data})
	}
	slices.SortFunc(list, func(a, b artifact) int { return strings.Compare(a.Name, b.Name) })
	return list[:min(len(list), maxArtifacts)]
}
