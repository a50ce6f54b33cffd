package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	templateWait    = 300 * time.Second
	templateStep    = 250 * time.Millisecond // at first; it grows up to maxTemplateStep
	maxTemplateStep = 5 * time.Second
)

// template is what the sandboxes are made from. It is looked for, made if it is not
// there and nobody has named it, and awaited, once, by whoever comes first.
type template struct {
	input   agentrun.TemplateInput
	given   bool
	control controlPlane
	step    time.Duration

	// turn has room for one.
	turn  chan struct{}
	ready bool // guarded by turn
}

func newTemplate(s settings, c controlPlane) *template {
	t := &template{
		control: c, step: templateStep, turn: make(chan struct{}, 1), given: s.TemplateName != "",
		input: agentrun.TemplateInput{
			TemplateName: s.TemplateName, TemplateType: agentrun.TypeCodeInterpreter,
			CPU: s.CPUs, Memory: s.MemoryMB, DiskSize: s.DiskMB,
			NetworkConfiguration:        agentrun.Network{NetworkMode: s.Network},
			SandboxIdleTimeoutInSeconds: int64(s.IdleTimeout.Seconds()),
		},
	}
	if s.Network != "PUBLIC" {
		t.input.NetworkConfiguration = agentrun.Network{NetworkMode: s.Network, VPCID: s.VPCID, SecurityGroupID: s.SecurityGroupID, VSwitchIDs: s.VSwitchIDs}
	}
	if !t.given {
		// Other settings give another template: those of one cannot all be changed.
		text, _ := json.Marshal(t.input) // strings and numbers cannot fail
		sum := sha256.Sum256(text)
		t.input.TemplateName = "sandbox-broker-" + hex.EncodeToString(sum[:6])
		t.input.Description = "Made by the sandbox broker."
	}
	return t
}

// check looks at a template that was named in the configuration.
func (t *template) check(ctx context.Context) error {
	got, err := again(ctx, func(ctx context.Context) (agentrun.Template, error) {
		return t.control.GetTemplate(ctx, t.input.TemplateName)
	})
	if err != nil {
		return err
	}
	if got.TemplateType != agentrun.TypeCodeInterpreter {
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "template_name", "the template is of the type %.50s; only %s will do", got.TemplateType, agentrun.TypeCodeInterpreter)
	}
	return nil
}

// ensure returns the name of a template that is ready.
func (t *template) ensure(ctx context.Context) (string, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if t.ready {
		return t.input.TemplateName, nil
	}
	ctx, cancel := context.WithTimeout(ctx, templateWait)
	defer cancel()
	get := func(ctx context.Context) (agentrun.Template, error) {
		return t.control.GetTemplate(ctx, t.input.TemplateName)
	}
	got, err := again(ctx, get)
	if isMissing(err) && !t.given {
		got, err = t.control.CreateTemplate(ctx, t.input)
		if err != nil && (exists(err) || repeatable(err)) {
			got, err = again(ctx, get) // somebody was faster, or the answer was lost
		}
	}
	for step := t.step; err == nil && got.Status != agentrun.StatusReady; step = min(2*step, maxTemplateStep) {
		if agentrun.Failed(got.Status) {
			return "", sdk.Errorf(sdk.CodeCreateFailed, "the template %s is %s: %.300s", t.input.TemplateName, got.Status, got.StatusReason)
		}
		if err = remote.Pause(ctx, step); err == nil {
			got, err = again(ctx, get)
		}
	}
	t.ready = err == nil
	return t.input.TemplateName, err
}

// forget has the template looked for again: somebody has deleted it.
func (t *template) forget() {
	t.turn <- struct{}{}
	t.ready = false
	<-t.turn
}
