package broker

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
	*broker
	cfg    *config.Config
	block  *config.Provider
	schema sdk.Schema
	result admin.Trial
}

// run fills in result. Its error is about what kept it from coming to one.
func (t *trial) run(ctx context.Context) error {
	bounded, cancel := context.WithTimeoutCause(ctx, trialTimeout, errTrialTooLong)
	defer cancel()
	l, diags := t.launch(bounded, t.cfg, t.block, t.state.NextProviderDir)
	defer t.clear(l)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if diags.HasErrors() {
		return diags
	}
	provider := l.process.Provider()
	began := time.Now()
	health, err := t.connect(bounded, provider, l)
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
func (t *trial) connect(ctx context.Context, provider sdk.Provider, l launched) (sdk.Health, error) {
	if err := provider.Configure(ctx, sdk.ConfigureRequest{
		Label: t.block.Label, BrokerID: t.state.ID(), StateDir: l.stateDir, Settings: l.settings,
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
		t.logger.Error("a plugin that was tried ended", "provider", t.block.Label, "stderr", stderr)
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

// clear ends the process and removes what it left.
func (t *trial) clear(l launched) {
	if l.process != nil {
		stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		l.process.Stop(stop)
	}
	if l.stateDir == "" {
		return
	}
	if err := t.state.RemoveAll([]string{l.stateDir}); err != nil {
		t.logger.Warn("the state directory of a provider that was tried could not be removed", "provider", t.block.Label, "error", err)
	}
}
