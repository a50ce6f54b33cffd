package agentrun

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// TypeCodeInterpreter is the type of the templates that this provider uses.
const TypeCodeInterpreter = "CodeInterpreter"

// The states of templates and sandboxes that matter to a client.
const (
	StatusCreating   = "CREATING"
	StatusReady      = "READY"
	StatusUpdating   = "UPDATING"
	StatusPaused     = "PAUSED"
	StatusTerminated = "TERMINATED"
)

// Failed says whether a state is the end of a template or sandbox that went wrong.
func Failed(status string) bool {
	return strings.HasSuffix(status, "FAILED") || status == "ERROR"
}

// Template is what sandboxes are made from.
type Template struct {
	TemplateName string `json:"templateName"`
	TemplateType string `json:"templateType"`
	Status       string `json:"status"`
	StatusReason string `json:"statusReason"`
}

// TemplateInput asks for a template. The service has no defaults for these.
type TemplateInput struct {
	TemplateName string  `json:"templateName"`
	TemplateType string  `json:"templateType"`
	CPU          float64 `json:"cpu"`
	// Memory and DiskSize in MB.
	Memory               int64   `json:"memory"`
	DiskSize             int64   `json:"diskSize,omitempty"`
	NetworkConfiguration Network `json:"networkConfiguration"`
	Description          string  `json:"description,omitempty"`
	// SandboxIdleTimeoutInSeconds is for sandboxes that do not say their own.
	SandboxIdleTimeoutInSeconds int64 `json:"sandboxIdleTimeoutInSeconds,omitempty"`
}

// Network says what sandboxes can reach.
type Network struct {
	NetworkMode     string   `json:"networkMode"`
	VPCID           string   `json:"vpcId,omitempty"`
	SecurityGroupID string   `json:"securityGroupId,omitempty"`
	VSwitchIDs      []string `json:"vswitchIds,omitempty"`
}

// Sandbox is a sandbox.
type Sandbox struct {
	SandboxID    string `json:"sandboxId"`
	TemplateName string `json:"templateName"`
	Status       string `json:"status"`
	// CreatedAt is an ISO 8601 time with an offset.
	CreatedAt                 string  `json:"createdAt"`
	SandboxIdleTimeoutSeconds Seconds `json:"sandboxIdleTimeoutSeconds"`
}

// Seconds is a number that the service also writes as a string.
type Seconds int64

// UnmarshalJSON reads both forms.
func (s *Seconds) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if text == "" || text == "null" {
		*s = 0
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%.50q is not a number of seconds", text)
	}
	*s = Seconds(n)
	return nil
}

// SandboxInput asks for a sandbox.
type SandboxInput struct {
	TemplateName string `json:"templateName"`
	// SandboxID is a name of the caller's; without one the service makes one.
	SandboxID string `json:"sandboxId,omitempty"`
	// SandboxIdleTimeoutSeconds is the name that the official client uses.
	SandboxIdleTimeoutSeconds int64 `json:"sandboxIdleTimeoutSeconds,omitempty"`
}

// SandboxPage is a part of the list of sandboxes.
type SandboxPage struct {
	Items     []Sandbox `json:"items"`
	NextToken string    `json:"nextToken"`
}

// CommandResult is what became of a command in a sandbox.
type CommandResult struct {
	Status string `json:"status"`
	// Result is nil where the answer has none.
	Result *struct {
		ExitCode int    `json:"exitCode"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
	} `json:"result"`
}

// envelope is around most answers.
type envelope struct {
	Code      json.RawMessage `json:"code"`
	RequestID string          `json:"requestId"`
	Message   string          `json:"message"`
	Data      json.RawMessage `json:"data"`
	// The gateway in front of the service writes these instead.
	GatewayCode      json.RawMessage `json:"Code"`
	GatewayMessage   string          `json:"Message"`
	GatewayRequestID string          `json:"RequestId"`
	// Error is how the inside of a sandbox fails.
	Error struct {
		Code    json.RawMessage `json:"code"`
		Message string          `json:"message"`
	} `json:"error"`
}
