package launch

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// trialTimeout bounds a trial, from the start of the process to its answer.
	trialTimeout = 30 * time.Second
	// settleTime is how long a provider that is not well at first may take to be.
	settleTime = 5 * time.Second
	// probeAgain is the pause before a provider that is not well yet is asked again.
	probeAgain = 200 * time.Millisecond
	// maxTrialMessage bounds what a plugin says about why it is not well, in bytes.
	maxTrialMessage = 4 << 10
)

// trial starts a provider beside those that run, to see whether it would work. It
// has a process and a state directory of its own, and is never in the catalog.
type trial struct {
	*Starter
	cfg    *config.Config
	block  *config.Provider
	schema sdk.Schema
	result admin.Trial
}

// Try tries a provider of a block. The error is about what kept the trial from coming to
// a result.
func (s *Starter) Try(ctx context.Context, cfg *config.Config, block *config.Provider) (admin.Trial, error) {
	t := trial{Starter: s, cfg: cfg, block: block}
	err := t.run(ctx)
	return t.result, err
}

// run fills in result. Its error is about what kept it from coming to one.
func (t *trial) run(ctx context.Context) error {
	bounded, cancel := context.WithTimeoutCause(ctx, trialTimeout, errTrialTooLong)
	defer cancel()
	one, diags := t.start(bounded, t.cfg, t.block, t.Dirs.NextProviderDir)
	defer t.Discard([]Started{one})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if diags.HasErrors() {
		return diags
	}
	provider := one.Process.Provider()
	began := time.Now()
	health, err := t.connect(bounded, provider, one)
	t.schema = provider.Describe().Schema
	t.result = admin.Trial{
		Success: err == nil && health.Healthy, Latency: time.Since(began), Details: map[string]string{},
		Message: "The provider accepts its settings and is well.",
	}
	for name, fact := range health.Details {
		t.result.Details[name] = t.fit(fact)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		t.explain(bounded, err)
	} else if !health.Healthy {
		t.result.Code, t.result.Message = sdk.CodeUnavailable, "The provider is not well: "+t.fit(health.Reason)
	}
	return nil
}

var errTrialTooLong = errors.New("the trial takes too long")

// connect configures the provider and asks until it is well, or for too long.
func (t *trial) connect(ctx context.Context, provider sdk.Provider, one Started) (sdk.Health, error) {
	if err := provider.Configure(ctx, sdk.ConfigureRequest{
		Label: t.block.Label, BrokerID: t.Dirs.ID(), StateDir: one.StateDir, Settings: one.Settings,
	}); err != nil {
		return sdk.Health{}, err
	}
	health, err := provider.Health(ctx)
	settled := time.NewTimer(settleTime)
	defer settled.Stop()
	for err == nil && !health.Healthy {
		select {
		case <-time.After(probeAgain):
		case <-settled.C:
			return health, nil
		case <-ctx.Done():
			return health, nil
		}
		health, err = provider.Health(ctx)
	}
	return health, err
}

func (t *trial) explain(ctx context.Context, err error) {
	if errors.Is(context.Cause(ctx), errTrialTooLong) {
		t.result.Code, t.result.Message = sdk.CodeConnectionFailed, "The provider did not answer within "+trialTimeout.String()+"."
		return
	}
	t.result.Code = sdk.CodeOf(err)
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		t.result.Message = t.fit(e.Message)
		if _, known := t.schema.Field(e.Field); known {
			t.result.Field = e.Field
		}
		return
	}
	t.result.Message = t.fit(err.Error())
	if stderr := pluginhost.Stderr(err); stderr != "" {
		t.Logger.Error("a plugin that was tried ended", "provider", t.block.Label, "stderr", stderr)
	}
}

// fit makes what a plugin says fit to be shown: without secrets, those too that the
// file has from elsewhere for settings that are none, and not too long.
func (t *trial) fit(text string) string {
	if text == "" {
		return ""
	}
	text = t.block.Diagnose(errors.New(text), t.schema)[0].Detail
	if len(text) > maxTrialMessage {
		return strings.ToValidUTF8(text[:maxTrialMessage], "") + "…"
	}
	return text
}
