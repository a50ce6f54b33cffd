package audited

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Explain leaves what the log says as it is: it is not about the plugin.
func (p *provider) Explain(ctx context.Context, err error) error {
	if effect.OfRecorder(err) {
		return err
	}
	return p.client.Explain(ctx, err)
}

func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (made sdk.Instance, err error) {
	w := p.witness
	e := w.effect(ctx, OpCreate, "")
	e.Tenant, e.Session, e.Instance = req.Labels[sdk.LabelTenant], req.Labels[sdk.LabelSession], idOf(req.Labels)
	e.Template, e.EnvNames = req.Template, names(req.Env)
	err = w.record(ctx, e, func(o *audit.Outcome) (err error) {
		if made, err = p.client.Create(ctx, req); err == nil {
			w.made(made, req.Labels)
			o.Made, o.Region = made.ID, made.Metadata["region"]
		}
		return err
	})
	if err != nil {
		return sdk.Instance{}, err
	}
	return made, nil
}

func (p *provider) Destroy(ctx context.Context, instanceID string) error {
	w := p.witness
	return w.record(ctx, w.effect(ctx, OpDestroy, instanceID), func(*audit.Outcome) error {
		err := p.client.Destroy(ctx, instanceID)
		if err == nil || sdk.CodeOf(err) == sdk.CodeNotFound {
			w.forget(instanceID)
		}
		return err
	})
}

// List changes nothing; it tells whose instances are, and which are gone.
func (p *provider) List(ctx context.Context) ([]sdk.Instance, error) {
	lacking := p.witness.all() // what is made meanwhile may not be listed yet
	instances, err := p.client.List(ctx)
	if err != nil {
		return instances, err
	}
	for _, i := range instances {
		p.witness.listed(i)
		delete(lacking, i.ID)
	}
	patience := failpoint.Hasten(listDelay)
	if p.Describe().Ephemeral {
		patience = 0 // its own process knows
	}
	p.witness.unlisted(lacking, patience)
	return instances, nil
}

func (p *provider) Pause(ctx context.Context, instanceID string) error {
	return p.witness.record(ctx, p.witness.effect(ctx, OpPause, instanceID), func(*audit.Outcome) error {
		return p.client.Pause(ctx, instanceID)
	})
}

func (p *provider) Resume(ctx context.Context, instanceID string) error {
	return p.witness.record(ctx, p.witness.effect(ctx, OpResume, instanceID), func(*audit.Outcome) error {
		return p.client.Resume(ctx, instanceID)
	})
}

func (p *provider) SetTTL(ctx context.Context, instanceID string, ttl time.Duration) (expires time.Time, err error) {
	err = p.witness.record(ctx, p.witness.effect(ctx, OpSetTTL, instanceID), func(*audit.Outcome) (err error) {
		expires, err = p.client.SetTTL(ctx, instanceID, ttl)
		return err
	})
	return expires, err
}
