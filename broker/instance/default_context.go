package instance

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// DefaultContext is what ExecuteRequest.Context may be.
	DefaultContext = "default"
	// makeContextTimeout bounds the making of a default context.
	makeContextTimeout = time.Minute
)

// inContext says whether the code runs in a context, whoever made it.
func (req ExecuteRequest) inContext() bool { return req.ContextID != "" || req.Context != "" }

func (req ExecuteRequest) checkContext() error {
	switch {
	case req.Context == "":
		return nil
	case req.Context != DefaultContext:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "context", "must be %q; a context that you have made goes by context_id", DefaultContext)
	case req.ContextID != "":
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "context", "does not go with context_id: the code runs in one context")
	default:
		return nil
	}
}

// defaultContexts are made in instances at first use, one for each language.
type defaultContexts struct {
	*lifecycle
	journal recorder
	// making is held by the one who makes a context in an instance.
	making *keyLock[*registry.Entry]
}

// of returns the ID of the instance's default context for a language, and
// makes it at first use. Of several at once one makes it, the others wait.
func (d defaultContexts) of(ctx context.Context, e *registry.Entry, t target) (string, error) {
	unlock, err := d.making.lock(ctx, e)
	if err != nil {
		return "", context.Cause(ctx)
	}
	defer unlock()
	if id := e.Snapshot().Contexts[string(t.language)]; id != "" {
		return id, nil
	}
	contexts, ok := t.ready.(sdk.Contexts)
	if !ok {
		return "", lacksInterface()
	}
	// What was begun is finished even if the caller goes away: else the instance would
	// have a context that nobody knows.
	making, cancel := d.bounded(context.WithoutCancel(ctx), makeContextTimeout)
	defer cancel()
	made, err := contexts.CreateContext(making, sdk.CreateContextRequest{InstanceID: e.Snapshot().Sandbox.ID, Language: t.language})
	switch {
	case err != nil && making.Err() != nil && !errors.Is(context.Cause(making), errShuttingDown):
		return "", sdk.Errorf(sdk.CodeUnavailable, "provider %q made no context within %s", t.provider.Label(), makeContextTimeout)
	case err != nil:
		return "", err
	case made.ID == "":
		return "", sdk.Errorf(sdk.CodeInternal, "provider %q made a context without an ID", t.provider.Label())
	}
	return made.ID, d.note(e, string(t.language), made.ID)
}

// forget makes the next use make another one, if that one is still known: it was
// deleted, or has ended.
func (d defaultContexts) forget(e *registry.Entry, language sdk.Language, id string) error {
	if e.Snapshot().Contexts[string(language)] != id {
		return nil
	}
	return d.note(e, string(language), "")
}

// note remembers the default context of a language, for the next broker too.
// Without an ID there is none.
func (d defaultContexts) note(e *registry.Entry, language, id string) error {
	contexts := e.SetContext(language, id)
	record, cancel := d.noting()
	defer cancel()
	return d.journal.of(e.Snapshot()).Amend(record, e.ID(), func(r *Record) { r.Contexts = contexts })
}

// renew makes a default context in place of one that is gone.
func (d defaultContexts) renew(ctx context.Context, e *registry.Entry, t target, gone string) (string, error) {
	if err := d.forget(e, t.language, gone); err != nil {
		return "", err
	}
	return d.of(ctx, e, t)
}
