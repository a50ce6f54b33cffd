package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// retryTrial is when it makes sense to try again to have a provider tried.
const retryTrial = 5 * time.Second

// ProviderSettings asks for settings of a provider.
type ProviderSettings struct {
	// Provider by its label. One that there is not is added.
	Provider string
	// Plugin is the name of an executable in the plugin directory, for a provider that
	// is added; "" for that of the label. A provider that there is keeps its own.
	Plugin string
	// Settings by name, as they come out of JSON with json.Number for numbers; nil
	// removes one. Those that are not named stay.
	Settings map[string]any
	// Test tries the provider first.
	Test bool
	// Activate makes it the active one.
	Activate bool
	IfMatch  []string
}

// SaveProvider gives a provider other settings. The errors are those of Change, and
// with Test why the provider is not well.
func (c *Configurator) SaveProvider(ctx context.Context, req ProviderSettings) (Outcome, error) {
	var trial *Trial
	e := c.providerEdit(ctx, req)
	if req.Test {
		e.Before = func(candidate *edit.Document) error {
			done, err := c.beginTrial()
			if err != nil {
				return err
			}
			defer done()
			tried, err := c.try(ctx, candidate, req.Provider)
			if err != nil {
				return err
			}
			if !tried.Success {
				return refusal(tried)
			}
			trial = &tried
			return nil
		}
	}
	outcome, err := c.Change(ctx, e)
	outcome.Trial = trial
	return outcome, err
}

// providerEdit is the change itself.
func (c *Configurator) providerEdit(ctx context.Context, req ProviderSettings) Edit {
	return Edit{
		Operation: fmt.Sprintf("provider %q", req.Provider), IfMatch: req.IfMatch, Asks: true,
		Make: func(d *edit.Document) error {
			if err := c.settings(ctx, d, req, false); err != nil {
				return err
			}
			if !req.Activate {
				return nil
			}
			return activate(d, req.Provider, nil)
		},
	}
}

// refusal is a trial that failed as an error.
func refusal(t Trial) error {
	if t.Code == sdk.CodeInvalidConfig && t.Field != "" {
		return FieldErrors{{Field: t.Field, Message: t.Message}}
	}
	code := t.Code
	if code == "" || code == sdk.CodeInternal || code.Info().HTTPStatus < 400 {
		code = sdk.CodeConnectionFailed
	}
	return sdk.Errorf(code, "%s", t.Message)
}

// Activation says which providers serve requests that name none.
type Activation struct {
	Provider string
	// Fallback are those that take over; nil leaves the list as it is written, where
	// Provider is passed over if it is among them.
	Fallback []string
	IfMatch  []string
}

// Activate changes which provider serves requests that name none. The errors are
// those of Change.
func (c *Configurator) Activate(ctx context.Context, req Activation) (Outcome, error) {
	return c.Change(ctx, activationEdit(req))
}

func activationEdit(req Activation) Edit {
	return Edit{
		Operation: fmt.Sprintf("active provider %q", req.Provider), IfMatch: req.IfMatch,
		Make: func(d *edit.Document) error {
			if !d.Has(edit.Provider(req.Provider)) {
				return sdk.FieldErrorf(sdk.CodeInvalidConfig, "provider", "is not the label of a provider in the configuration")
			}
			return activate(d, req.Provider, req.Fallback)
		},
	}
}

// activate sets the active provider, and the fallback unless it is nil. A fallback that
// has the new active one stays as it is written: it is passed over there.
func activate(d *edit.Document, provider string, fallback []string) error {
	cfg, _ := d.Check()
	if slices.Contains(fallback, provider) {
		return FieldErrors{{Field: "fallback", Message: fmt.Sprintf("has %q, which is to be the active provider; its fallback is another", provider)}}
	}
	changes := fallback != nil && !slices.Equal(fallback, cfg.FallbackWritten)
	// Where there is one provider it need not be named, unless the block is made.
	if cfg.ActiveProvider != provider || changes && len(fallback) > 0 && !d.Has(edit.Providers()) {
		active, err := edit.Literal(provider)
		if err != nil {
			return err
		}
		if err := d.Set(edit.Providers(), "active", active); err != nil {
			return err
		}
	}
	switch {
	case !changes:
		return nil
	case len(fallback) == 0:
		return d.Unset(edit.Providers(), "fallback")
	}
	others, err := edit.Literal(fallback)
	if err != nil {
		return err
	}
	return d.Set(edit.Providers(), "fallback", others)
}

// Test starts a provider with the settings of a request over those that it has, beside
// the one that runs, and says whether it works. Nothing is written. The error is SB008 when
// others are being tried; settings that cannot be right are FieldErrors or
// config.Diagnostics.
func (c *Configurator) Test(ctx context.Context, req ProviderSettings) (Trial, error) {
	done, err := c.beginTrial()
	if err != nil {
		return Trial{}, err
	}
	defer done()
	d, err := c.open()
	if err != nil {
		return Trial{}, err
	}
	if err := c.settings(ctx, d, req, true); err != nil {
		return Trial{}, err
	}
	return c.try(ctx, d, req.Provider)
}

// beginTrial makes sure that there are not too many.
func (c *Configurator) beginTrial() (done func(), err error) {
	select {
	case c.trials <- struct{}{}:
		return func() { <-c.trials }, nil
	default:
		busy := sdk.Errorf(sdk.CodeQuotaExceeded, "%d providers are being tried already; wait until one is done", maxTrials)
		busy.RetryAfter = retryTrial
		return nil, busy
	}
}

// try has a provider tried as a document has it.
func (c *Configurator) try(ctx context.Context, d *edit.Document, label string) (Trial, error) {
	cfg, diags := d.Check()
	block := cfg.Provider(label)
	if block == nil || cfg.PluginDir == "" {
		return Trial{}, diags
	}
	return c.daemon.Try(ctx, cfg, block)
}
