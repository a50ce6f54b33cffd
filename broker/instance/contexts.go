package instance

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

// fieldContext is the field that a provider names when it does not know a context.
const fieldContext = "context_id"

// maxCwd is the longest path of a directory, in bytes.
const maxCwd = 4096

// BoundContext checks a request for a context in the leased instance. language is
// what the caller calls it.
func (l *Lease) BoundContext(req *sdk.CreateContextRequest, language string) (err error) {
	req.InstanceID = l.InstanceID
	if req.Language, err = routing.LanguageOf(l.entry.Snapshot().Provider.Description(), language); err != nil {
		return err
	}
	if len(req.Cwd) > maxCwd || strings.ContainsRune(req.Cwd, 0) {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "cwd", "must have at most %d bytes, none of them NUL", maxCwd)
	}
	return checkEnv(req.Env)
}

// question puts a short question to a provider, as Service.asked does.
type question func(caller context.Context, t target, put func(context.Context) error) error

// languageOfContext asks what the caller has left out: a context has one language.
func languageOfContext(ctx context.Context, ask question, e *registry.Entry, t target, id string) (sdk.Language, error) {
	contexts, ok := t.ready.(sdk.Contexts)
	if !ok {
		return "", lacksInterface()
	}
	var all []sdk.CodeContext
	err := ask(ctx, t, func(ctx context.Context) (err error) {
		all, err = contexts.ListContexts(ctx, e.Snapshot().Sandbox.ID)
		return err
	})
	if err != nil {
		return "", executionError(ctx, ctx, e, ExecuteRequest{}, err, false)
	}
	for _, one := range all {
		if one.ID == id {
			return one.Language, nil
		}
	}
	return "", sdk.FieldErrorf(sdk.CodeNotFound, fieldContext, "no such context; it was never made or has been deleted")
}

// lacksContext tells an unknown context from an unknown instance.
func lacksContext(err error) bool {
	coded, ok := errors.AsType[*sdk.Error](err)
	return ok && coded.Code == sdk.CodeNotFound && coded.Field == fieldContext
}

const (
	// DefaultContext is what ExecuteRequest.Context may be.
	DefaultContext = "default"
	// makeContextTimeout bounds the making of a default context.
	makeContextTimeout = time.Minute
)

// defaultContexts are made in instances at first use, one for each language.
type defaultContexts struct {
	*lifecycle
	journal recorder
	// making is held by the one who makes a context in an instance.
	making *keylock.Locks[*registry.Entry]
}

// of returns the ID of the instance's default context for a language, and
// makes it at first use, in the directory cwd. Of several at once one makes it, the others wait.
func (d defaultContexts) of(ctx context.Context, e *registry.Entry, t target, cwd string) (string, error) {
	unlock, err := d.making.Take(ctx, e)
	if err != nil {
		return "", context.Cause(ctx)
	}
	defer unlock()
	if id := e.Snapshot().Contexts[string(t.Language)]; id != "" {
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
	made, err := contexts.CreateContext(making, sdk.CreateContextRequest{InstanceID: e.Snapshot().Sandbox.ID, Language: t.Language, Cwd: cwd})
	if err != nil && errors.Is(context.Cause(making), errNoAnswer) {
		return "", sdk.Errorf(sdk.CodeUnavailable, "provider %q made no context within %s", t.provider.Label(), makeContextTimeout)
	}
	if err != nil {
		return "", err
	}
	if made.ID == "" {
		return "", sdk.Errorf(sdk.CodeInternal, "provider %q made a context without an ID", t.provider.Label())
	}
	return made.ID, d.note(e, string(t.Language), made.ID)
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
func (d defaultContexts) renew(ctx context.Context, e *registry.Entry, t target, cwd, gone string) (string, error) {
	if err := d.forget(e, t.Language, gone); err != nil {
		return "", err
	}
	return d.of(ctx, e, t, cwd)
}
