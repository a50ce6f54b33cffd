package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/internal/api"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// The labels of a sandbox.
const (
	labelOwner    = "sandbox-broker"          // ownerOf: which broker and provider block it belongs to
	labelTemplate = "sandbox-broker-template" // of the broker
	labelDeadline = "sandbox-broker-deadline" // Unix seconds after which nobody keeps it alive; absent for never
	labelOwn      = "sandbox-broker."         // before the name of a label of the broker's
)

const (
	// pollFirst and pollMost are the pauses between looks at a sandbox that is changing its
	// state. Daytona's own clients begin with 100 ms, and end with a second.
	pollFirst = 100 * time.Millisecond
	pollMost  = time.Second
	// changeTime bounds a change of state.
	changeTime = 2 * time.Minute
	// destroyTime bounds the end of a sandbox.
	destroyTime = 30 * time.Second
	// cleanUp bounds what is done after a caller has gone.
	cleanUp = 10 * time.Second
)

// ownerOf is a word for a broker and one of its provider blocks.
func ownerOf(brokerID, label string) string {
	sum := sha256.Sum256([]byte(brokerID + "\x00" + label))
	return hex.EncodeToString(sum[:8])
}

// nameOf is the name for a creation: the same for the same key, so that one whose answer was
// lost is found, and none is made twice.
func (p *Provider) nameOf(key string) string {
	if key == "" {
		key = remote.NewName()
	}
	sum := sha256.Sum256([]byte(p.owner + "\x00" + key))
	return "sb-" + hex.EncodeToString(sum[:12])
}

// Create implements sdk.Provider.
func (p *Provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if !slices.ContainsFunc(templates(), func(t sdk.Template) bool { return t.Name == req.Template }) {
		return sdk.Instance{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "there is no template %.100q", req.Template)
	}
	order := p.settings.order()
	order.Name, order.Env = p.nameOf(req.IdempotencyKey), req.Env
	order.Labels = map[string]string{labelOwner: p.owner, labelTemplate: req.Template}
	if req.TTL > 0 {
		order.Labels[labelDeadline] = strconv.FormatInt(time.Now().Add(req.TTL).Unix(), 10)
	}
	for name, value := range req.Labels {
		order.Labels[labelOwn+name] = value
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.settings.CreateTimeout, errSlow)
	defer cancel()
	var effect retry.Effect
	made, err := p.order(ctx, order, &effect)
	if err != nil {
		return sdk.Instance{}, effect.Error(p.explainCreation(ctx, err))
	}
	made, err = p.await(ctx, made.ID, api.Started, func(s api.Sandbox) error {
		if s.State == api.Stopped || s.State == api.Paused || s.State == api.Archived { // an earlier call made it, and it is paused
			return errAsItIs
		}
		return nil
	})
	if errors.Is(err, errAsItIs) {
		return p.adopt(made).instance(), nil
	}
	var sb *sandbox
	if err == nil {
		sb = p.adopt(made)
		_, err = sb.workspaceOf(ctx)
	}
	if err == nil {
		return sb.instance(), nil
	}
	if req.IdempotencyKey == "" || ctx.Err() == nil || errors.Is(context.Cause(ctx), errSlow) {
		p.abandon(ctx, made.ID)
	}
	// Else whoever has the key looks for it by List, and may have taken it already.
	return sdk.Instance{}, p.explainCreation(ctx, err)
}

var (
	errSlow = sdk.Errorf(sdk.CodeCreateFailed, "the sandbox did not run within create_timeout")
	// errAsItIs ends a wait for a state that will not come.
	errAsItIs = errors.New("the sandbox stays as it is")
)

// order asks for a sandbox until there is one. Its name is one of its own: what an attempt
// whose answer was lost has made is found by it.
func (p *Provider) order(ctx context.Context, order api.NewSandbox, effect *retry.Effect) (api.Sandbox, error) {
	return again(ctx, p, func(ctx context.Context) (api.Sandbox, error) {
		made, err := p.api.Create(ctx, order)
		if err == nil || denied(err) && statusOf(err) != http.StatusConflict {
			return made, err
		}
		effect.Possible()
		there, looked := p.api.Get(ctx, order.Name)
		switch {
		case looked == nil && there.Labels[labelOwner] == p.owner && there.State != api.Destroying && there.State != api.Destroyed:
			return there, nil
		case looked == nil && statusOf(err) == http.StatusConflict:
			return made, retry.Again(err, 0) // it is on its way out, and the name with it
		}
		return made, err
	})
}

// await waits until a sandbox has a state. other may end the wait for what is none yet.
func (p *Provider) await(ctx context.Context, id string, want api.State, other func(api.Sandbox) error) (api.Sandbox, error) {
	for step := pollFirst; ; step = min(step+step/4, pollMost) {
		s, err := again(ctx, p, func(ctx context.Context) (api.Sandbox, error) { return p.api.Get(ctx, id) })
		if err != nil {
			s.ID = id
			return s, err
		}
		switch s.State {
		case want:
			return s, nil
		case api.Failed, api.BuildFailed:
			return s, sdk.Errorf(sdk.CodeCreateFailed, "Daytona's sandbox is in the state %s: %.300s", s.State, s.ErrorReason)
		case api.Destroying, api.Destroyed:
			return s, errNoInstance
		}
		if err := other(s); err != nil {
			return s, err
		}
		if remote.Pause(ctx, step) != nil {
			return s, errors.Join(context.Cause(ctx), errors.New("the sandbox is "+string(s.State)))
		}
	}
}

// abandon destroys what a failed creation has left, whether or not anybody waits. What stays
// nevertheless is in List.
func (p *Provider) abandon(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := p.Destroy(ctx, id); err != nil {
		p.logger.Warn("a sandbox that could not be used is still there; it stops by itself", "sandbox", id, "error", err)
	}
}

// Destroy implements sdk.Provider. It returns when the sandbox is gone: one that stays in the
// state destroying is not.
func (p *Provider) Destroy(ctx context.Context, id string) error {
	if !idForm.MatchString(id) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTime)
	defer cancel()
	s, err := again(ctx, p, func(ctx context.Context) (api.Sandbox, error) { return p.api.Get(ctx, id) })
	if err == nil && s.Labels[labelOwner] != p.owner {
		return nil // it is somebody else's
	}
	for step, asked := pollFirst, false; err == nil && s.State != api.Destroyed; step = min(step+step/4, pollMost) {
		if !asked && s.State != api.Destroying {
			_, err = again(ctx, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.api.Delete(ctx, id) })
			// It may be between two states, which it leaves by itself.
			if asked = err == nil; statusOf(err) == http.StatusConflict {
				err = nil
			}
		} else if remote.Pause(ctx, step) != nil {
			return sdk.Errorf(sdk.CodeUnavailable, "the sandbox is %s, and not gone yet: %w", s.State, ctx.Err())
		}
		if err == nil {
			s, err = again(ctx, p, func(ctx context.Context) (api.Sandbox, error) { return p.api.Get(ctx, id) })
		}
	}
	if err != nil && !isMissing(err) {
		return p.explain(ctx, err, sdk.CodeUnavailable, "destroy a sandbox")
	}
	return p.forget(id)
}

// List implements sdk.Provider.
func (p *Provider) List(ctx context.Context) ([]sdk.Instance, error) {
	found, err := p.carrying(ctx, p.owner)
	if err != nil {
		return nil, p.explain(ctx, err, sdk.CodeUnavailable, "list the sandboxes")
	}
	var all []sdk.Instance
	for _, s := range found {
		all = append(all, p.adopt(s).instance())
	}
	return all, nil
}

// carrying are the sandboxes that there are of an owner.
func (p *Provider) carrying(ctx context.Context, owner string) ([]api.Sandbox, error) {
	found, err := again(ctx, p, func(ctx context.Context) ([]api.Sandbox, error) { return p.api.List(ctx, labelOwner, owner) })
	return slices.DeleteFunc(found, func(s api.Sandbox) bool {
		// Whatever the server makes of filters.
		return s.Labels[labelOwner] != owner || s.State == api.Destroying || s.State == api.Destroyed || !idForm.MatchString(s.ID)
	}), err
}

// forgetAllBut drops the records of sandboxes that have ended while nobody looked.
func (p *Provider) forgetAllBut(found []sdk.Instance) {
	for id := range p.records.All() {
		if !slices.ContainsFunc(found, func(i sdk.Instance) bool { return i.ID == id }) {
			if err := p.forget(id); err != nil {
				p.logger.Warn("the record of a sandbox that has ended is still there", "sandbox", id, "error", err)
			}
		}
	}
}

// workspaceOf finds out where code can work: the contract says /workspace, and the image
// leaves open whether its user may make that.
func (sb *sandbox) workspaceOf(ctx context.Context) (string, error) {
	release, err := sb.p.settingUp.Take(ctx, sb.ID)
	if err != nil {
		return "", err
	}
	defer release()
	sb.mu.Lock()
	known := sb.workspace
	sb.mu.Unlock()
	if known != "" {
		return known, nil
	}
	found, err := place.Ask(ctx, service{sb.p}, func(ctx context.Context) (string, error) {
		return place.Setup(ctx, runner{sb}, remote.Workspace, "~/workspace")
	})
	if err == nil {
		sb.mu.Lock()
		sb.workspace = found
		sb.mu.Unlock()
	}
	return found, err
}

func trimmed(address string) string { return strings.TrimRight(address, "/") }
