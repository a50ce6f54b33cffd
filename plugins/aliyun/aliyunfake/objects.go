package aliyunfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// States of templates and sandboxes.
const (
	statusCreating   = "CREATING"
	statusReady      = "READY"
	statusPaused     = "PAUSED"
	statusTerminated = "TERMINATED"
)

var errForm = errors.New("one field path and one file are required, and nothing else")

// templateInput is the published body of CreateTemplate, as far as it is of use here: a
// field that is not in it is refused.
type templateInput struct {
	TemplateName         string  `json:"templateName"`
	TemplateType         string  `json:"templateType"`
	CPU                  float64 `json:"cpu"`
	Memory               int64   `json:"memory"`
	DiskSize             int64   `json:"diskSize"`
	NetworkConfiguration struct {
		NetworkMode     string   `json:"networkMode"`
		VPCID           string   `json:"vpcId"`
		SecurityGroupID string   `json:"securityGroupId"`
		VSwitchIDs      []string `json:"vswitchIds"`
	} `json:"networkConfiguration"`
	Description                 string            `json:"description"`
	SandboxIdleTimeoutInSeconds int64             `json:"sandboxIdleTimeoutInSeconds"`
	SandboxTTLInSeconds         int64             `json:"sandboxTTLInSeconds"`
	EnvironmentVariables        map[string]string `json:"environmentVariables"`
	ExecutionRoleARN            string            `json:"executionRoleArn"`
	WorkspaceID                 string            `json:"workspaceId"`
}

func (t templateInput) problem() string {
	switch network := t.NetworkConfiguration; {
	case t.TemplateName == "", t.TemplateType == "", t.CPU <= 0, t.Memory <= 0, network.NetworkMode == "":
		return "a required field is missing"
	case network.NetworkMode != "PUBLIC" && (network.VPCID == "" || len(network.VSwitchIDs) == 0):
		return "a private network needs vpcId and vswitchIds"
	}
	return ""
}

// sandboxInput is that of CreateSandbox. The idle timeout has two names.
type sandboxInput struct {
	TemplateName                string `json:"templateName"`
	SandboxID                   string `json:"sandboxId"`
	SandboxIdleTimeoutInSeconds *int64 `json:"sandboxIdleTimeoutInSeconds"`
	SandboxIdleTimeoutSeconds   *int64 `json:"sandboxIdleTimeoutSeconds"`
}

// strict reads a body that must be what its type says, and no more. It returns what is
// wrong with it.
func strict(r *http.Request, body []byte, value any) string {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
		return "the content type must be application/json"
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(value); err != nil {
		return err.Error()
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "there is something behind the body"
	}
	return ""
}
