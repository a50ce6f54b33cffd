package provider

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

const (
	readyWait = 60 * time.Second
	readyStep = 100 * time.Millisecond // at first; it grows up to maxStep
	maxStep   = time.Second
	// cleanUp bounds what is done after a caller has gone.
	cleanUp = 10 * time.Second
	// maxTaken is how often a name of a creation may belong to a sandbox that has
	// ended: the service remembers them for a while.
	maxTaken = 5
)

// sandboxID is the form of the IDs that Create gives: the owner, and 24 hex digits.
var sandboxID = regexp.MustCompile(`^sb[0-9a-f]{12}[0-9a-f]{24}$`)

// ownerOf is what the IDs of a broker's sandboxes begin with. The service keeps no
// labels, so that its list tells by the ID whose a sandbox is.
func ownerOf(brokerID, label string) string {
	sum := sha256.Sum256([]byte(brokerID + "\x00" + label))
	return "sb" + hex.EncodeToString(sum[:6])
}

// nameOf is the name for a creation: the same for the same key, so that one that is
// asked for again is found.
func (p *Provider) nameOf(key string, taken int) string {
	unique := make([]byte, 12)
	if key == "" {
		_, _ = rand.Read(unique) // never fails, by its documentation
	} else {
		sum := sha256.Sum256([]byte{byte(taken)})
		sum = sha256.Sum256(append([]byte(key), sum[:]...))
		copy(unique, sum[:])
	}
	return p.owner + hex.EncodeToString(unique)
}

// Create implements sdk.Provider.
func (p *Provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if !slices.ContainsFunc(p.Describe().Templates, func(t sdk.Template) bool { return t.Name == req.Template }) {
		return sdk.Instance{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "there is no template %.100q", req.Template)
	}
	var effect retry.Effect
	made, err := p.create(ctx, req, &effect)
	if errors.Is(err, errTaken) {
		err = sdk.Errorf(sdk.CodeCreateFailed, "%w", err)
	}
	return made, effect.Error(p.explain(ctx, err, sdk.CodeCreateFailed, "make a sandbox"))
}

var errTaken = errors.New("all names for this creation belong to sandboxes that have ended")

func (p *Provider) create(ctx context.Context, req sdk.CreateRequest, effect *retry.Effect) (sdk.Instance, error) {
	name, err := p.template.ensure(ctx)
	if err != nil {
		return sdk.Instance{}, err
	}
	for taken := range maxTaken {
		id := p.nameOf(req.IdempotencyKey, taken)
		if !p.owns(id) {
			continue
		}
		if one, ok := p.records.Get(id); ok {
			effect.Possible()
			s, err := p.data.GetSandbox(ctx, id)
			switch {
			case err == nil && s.Status == agentrun.StatusReady:
				return p.prepare(ctx, one)
			case err == nil && s.Status == agentrun.StatusPaused:
				return p.instance(one), nil
			}
		}
		now := time.Now().UTC().Truncate(time.Second)
		life := maxLifetime
		if req.TTL > 0 {
			life = min(life, req.TTL+time.Minute)
		}
		one := record{
			ID: id, Template: req.Template, Labels: req.Labels, Env: req.Env, CreatedAt: now, ExpiresAt: now.Add(maxLifetime), KeepUntil: now.Add(life),
			Idle: min(p.settings.IdleTimeout, max(life, minIdleTimeout)),
		}
		if err := p.records.Put(one.ID, one); err != nil {
			return sdk.Instance{}, err
		}
		p.Forget(one.ID) // what was of this name has ended
		s, err := again(ctx, func(ctx context.Context) (agentrun.Sandbox, error) {
			s, err := p.data.CreateSandbox(ctx, agentrun.SandboxInput{
				TemplateName: name, SandboxID: id, SandboxIdleTimeoutSeconds: int64(one.Idle.Seconds()),
			})
			if !denied(err) {
				effect.Possible()
			}
			return s, err
		})
		if err != nil && exists(err) {
			s, err = again(ctx, func(ctx context.Context) (agentrun.Sandbox, error) { return p.data.GetSandbox(ctx, id) })
			if isMissing(err) || err == nil && s.Status == agentrun.StatusTerminated {
				if err := p.records.Remove(id); err != nil {
					return sdk.Instance{}, err
				}
				continue
			}
		}
		if err == nil && s.SandboxID != id {
			// The service has given it a name of its own, by which it cannot be found again.
			p.abandon(ctx, s.SandboxID)
			err = sdk.Errorf(sdk.CodeCreateFailed, "the service has not taken the name of the sandbox")
		}
		var made sdk.Instance
		exists := err == nil
		if exists {
			made, err = p.prepare(ctx, one)
		}
		if err == nil {
			return made, nil
		}
		if isMissing(err) {
			p.template.forget()
		}
		switch {
		case req.IdempotencyKey == "", exists && ctx.Err() == nil:
			p.abandon(ctx, id)
		case effect.None():
			err = errors.Join(err, p.records.Remove(id))
		default:
			// Whoever has the key looks for it by List, and may have taken it before it
			// could be destroyed here.
		}
		return sdk.Instance{}, err
	}
	return sdk.Instance{}, errTaken
}

// prepare waits until a sandbox can run code, and finds out where.
func (p *Provider) prepare(ctx context.Context, one record) (sdk.Instance, error) {
	waiting, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for step := readyStep; ; step = min(2*step, maxStep) {
		ready, err := p.data.Ready(waiting, one.ID)
		if ready {
			break
		}
		if f, ok := errors.AsType[*agentrun.Failure](err); ok && f.Refused() {
			return sdk.Instance{}, err
		}
		if s, err := p.data.GetSandbox(waiting, one.ID); err == nil && (agentrun.Failed(s.Status) || s.Status == agentrun.StatusTerminated) {
			return sdk.Instance{}, sdk.Errorf(sdk.CodeCreateFailed, "the sandbox is %s before it was ready", s.Status)
		}
		if remote.Pause(waiting, step) != nil {
			if ctx.Err() != nil {
				return sdk.Instance{}, ctx.Err()
			}
			return sdk.Instance{}, sdk.Errorf(sdk.CodeCreateFailed, "the sandbox was not ready within %v", readyWait)
		}
	}
	if one.Workspace == "" {
		var err error
		if one, err = p.setup(waiting, one); err != nil {
			return sdk.Instance{}, err
		}
	}
	return p.instance(one), nil
}

// setup finds out where code can work: the contract says /workspace, and the service
// leaves open whether code may make that. It leaves a note there, or finds the one that was
// left when the sandbox was made.
func (p *Provider) setup(ctx context.Context, one record) (record, error) {
	ours, err := json.Marshal(note{one.Env, one.KeepUntil})
	if err != nil {
		return one, err
	}
	var workspace string
	left, err := again(ctx, func(ctx context.Context) (left string, err error) {
		workspace, left, err = place.SetupWithNote(ctx, runner{p.data, one.ID}, string(ours), remote.Workspace, "~/workspace")
		return left, err
	})
	if err != nil {
		return one, err
	}
	var found note
	if err := json.Unmarshal([]byte(left), &found); err != nil {
		return one, sdk.Errorf(sdk.CodeUnavailable, "code in the sandbox has overwritten what was kept there of its environment: %w", err)
	}
	know := func(one record) record {
		one.Workspace, one.Env, one.KeepUntil = workspace, found.Env, found.KeepUntil
		return one
	}
	if _, known := p.records.Get(one.ID); known {
		err = p.records.Change(one.ID, know)
	} else {
		err = p.records.Put(one.ID, know(one))
	}
	return know(one), err
}

func (p *Provider) instance(one record) sdk.Instance {
	metadata := map[string]string{"region": p.settings.Region, "max_timeout_seconds": time.Duration(p.settings.Timeout * int64(time.Second)).String()}
	if one.Workspace != "" {
		metadata["workspace"] = one.Workspace
	}
	return sdk.Instance{ID: one.ID, Template: one.Template, Labels: one.Labels, Metadata: metadata, CreatedAt: one.CreatedAt, ExpiresAt: one.ExpiresAt}
}

// abandon destroys what a failed creation may have left, whether or not anybody waits.
// What stays nevertheless is in List.
func (p *Provider) abandon(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := p.destroy(ctx, id); err != nil {
		p.log.Warn("a sandbox that could not be used is still there", "sandbox", id, "error", p.secrets.Error(err))
	}
}

// Destroy implements sdk.Provider. That a sandbox is this broker's which another one has made
// it may not have been told yet.
func (p *Provider) Destroy(ctx context.Context, id string) error {
	if !sandboxID.MatchString(id) || p.adopted.isReleased(id) {
		return nil
	}
	return p.explain(ctx, p.destroy(ctx, id), sdk.CodeUnavailable, "destroy a sandbox")
}

// destroy deletes a sandbox and looks whether it is gone.
func (p *Provider) destroy(ctx context.Context, id string) error {
	_, err := again(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.data.DeleteSandbox(ctx, id)
	})
	if err != nil && !isMissing(err) {
		return err
	}
	for err == nil {
		var s agentrun.Sandbox
		s, err = again(ctx, func(ctx context.Context) (agentrun.Sandbox, error) { return p.data.GetSandbox(ctx, id) })
		if err == nil && s.Status == agentrun.StatusTerminated {
			break
		}
		if err == nil {
			err = remote.Pause(ctx, readyStep)
		}
	}
	if err != nil && !isMissing(err) {
		return err
	}
	p.adopted.forget(id)
	return p.forget(id)
}

// forget forgets what is known of a sandbox.
func (p *Provider) forget(id string) error {
	err := p.records.Remove(id)
	p.Forget(id)
	p.leases.forget(id)
	return err
}
