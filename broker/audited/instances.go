package audited

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Explain leaves what the log says as it is: it is not about the plugin.
func (p *provider) Explain(ctx context.Context, err error) error {
	if effect.OfRecorder(err) {
		return err
	}
	return p.client.Explain(ctx, err)
}

// Create records the making of an instance. Where it is made for one execution, the
// record is that of the execution, and Execute ends it.
func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (made sdk.Instance, err error) {
	rec := p.recorder
	e := rec.effect(ctx, OpCreate, "")
	e.Tenant, e.Session, e.Instance = req.Labels[sdk.LabelTenant], req.Labels[sdk.LabelSession], idOf(req.Labels)
	e.Template, e.EnvNames = req.Template, names(req.Env)
	if execution, ok := effect.Purpose(ctx); ok {
		return p.createFor(ctx, execution, e, req)
	}
	err = rec.record(ctx, e, func(o *audit.Outcome) (err error) {
		if made, err = p.client.Create(ctx, req); err == nil {
			rec.made(made, req.Labels, nil)
			o.Made, o.Region = made.ID, made.Metadata["region"]
		}
		return err
	})
	if err != nil {
		return sdk.Instance{}, err
	}
	return made, nil
}

// createFor makes an instance for one execution.
func (p *provider) createFor(ctx context.Context, execution sdk.ExecuteRequest, e audit.Effect, req sdk.CreateRequest) (sdk.Instance, error) {
	rec := p.recorder
	e.Operation, e.Covers = OpExecute, oneShot
	executing(&e, execution)
	r, err := rec.log.Begin(ctx, e)
	if err != nil {
		return sdk.Instance{}, err
	}
	made, err := p.client.Create(ctx, req)
	outcome := audit.Outcome{Detail: "no instance was made for it"}
	if err != nil {
		failed(ctx, &outcome, err)
	} else {
		r.Fill(func(e *audit.Effect) { e.ProviderInstance = made.ID })
		if rec.made(made, req.Labels, &once{record: r, executionID: execution.ExecutionID, codeHash: e.CodeHash}) {
			return made, nil
		}
		outcome = audit.Outcome{Status: audit.StatusUnknown, Made: made.ID, Detail: "the provider had given out its instance before"}
	}
	if unrecorded := r.End(outcome); unrecorded != nil {
		err = unrecorded
	}
	if err != nil {
		return sdk.Instance{}, err
	}
	return made, nil
}

// Destroy is covered by the effect that the instance was made for, once, when it happens
// for nothing but the end of that. Anything else has lines of its own.
func (p *provider) Destroy(ctx context.Context, instanceID string) error {
	rec := p.recorder
	call := func(*audit.Outcome) error {
		err := p.client.Destroy(ctx, instanceID)
		if err == nil || sdk.CodeOf(err) == sdk.CodeNotFound {
			rec.forget(instanceID)
		}
		return err
	}
	if origin.Of(ctx).Cause == origin.NotKept && rec.coversEnd(instanceID) {
		return call(nil)
	}
	return rec.record(ctx, rec.effect(ctx, OpDestroy, instanceID), call)
}

// List changes nothing; it tells whose instances are, and which are gone.
func (p *provider) List(ctx context.Context) ([]sdk.Instance, error) {
	lacking := p.recorder.all() // what is made meanwhile may not be listed yet
	instances, err := p.client.List(ctx)
	if err != nil {
		return instances, err
	}
	for _, i := range instances {
		p.recorder.listed(i)
		delete(lacking, i.ID)
	}
	patience := failpoint.Hasten(listDelay)
	if p.Describe().Ephemeral {
		patience = 0 // its own process knows
	}
	p.recorder.unlisted(lacking, patience)
	return instances, nil
}

func (p *provider) Pause(ctx context.Context, instanceID string) error {
	return p.recorder.record(ctx, p.recorder.effect(ctx, OpPause, instanceID), func(*audit.Outcome) error {
		return p.client.Pause(ctx, instanceID)
	})
}

func (p *provider) Resume(ctx context.Context, instanceID string) error {
	return p.recorder.record(ctx, p.recorder.effect(ctx, OpResume, instanceID), func(*audit.Outcome) error {
		return p.client.Resume(ctx, instanceID)
	})
}

func (p *provider) SetTTL(ctx context.Context, instanceID string, ttl time.Duration) (expires time.Time, err error) {
	err = p.recorder.record(ctx, p.recorder.effect(ctx, OpSetTTL, instanceID), func(*audit.Outcome) (err error) {
		expires, err = p.client.SetTTL(ctx, instanceID, ttl)
		return err
	})
	return expires, err
}
