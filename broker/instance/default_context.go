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

// defaultContext returns the ID of the instance's default context for a language, and
// makes it at first use. Of several at once one makes it, the others wait.
func (s *Service) defaultContext(ctx context.Context, e *registry.Entry, t target) (string, error) {
	unlock, err := s.makingContext.lock(ctx, e)
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
	making, cancel := s.bounded(context.WithoutCancel(ctx), makeContextTimeout)
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
	return made.ID, s.noteContext(e, string(t.language), made.ID)
}

// forgetContext makes the next use make another one, if that one is still known: it was
// deleted, or has ended.
func (s *Service) forgetContext(e *registry.Entry, language sdk.Language, id string) error {
	if e.Snapshot().Contexts[string(language)] != id {
		return nil
	}
	return s.noteContext(e, string(language), "")
}

// noteContext remembers the default context of a language, for the next broker too.
// Without an ID there is none.
func (s *Service) noteContext(e *registry.Entry, language, id string) error {
	contexts := e.SetContext(language, id)
	record, cancel := s.noting()
	defer cancel()
	return s.journal.of(e.Snapshot()).Amend(record, e.ID(), func(r *Record) { r.Contexts = contexts })
}

// renewContext makes a default context in place of one that is gone.
func (s *Service) renewContext(ctx context.Context, e *registry.Entry, t target, gone string) (string, error) {
	if err := s.forgetContext(e, t.language, gone); err != nil {
		return "", err
	}
	return s.defaultContext(ctx, e, t)
}
