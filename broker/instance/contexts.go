package instance

import (
	"context"
	"errors"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// fieldContext is the field that a provider names when it does not know a context.
const fieldContext = "context_id"

// maxCwd is the longest path of a directory, in bytes.
const maxCwd = 4096

// BoundContext checks a request for a context in the leased instance. language is
// what the caller calls it.
func (l *Lease) BoundContext(req *sdk.CreateContextRequest, language string) (err error) {
	req.InstanceID = l.InstanceID
	if req.Language, err = supported(l.entry.Snapshot().Provider.Description(), language); err != nil {
		return err
	}
	if len(req.Cwd) > maxCwd || strings.ContainsRune(req.Cwd, 0) {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "cwd", "must have at most %d bytes, none of them NUL", maxCwd)
	}
	return checkEnv(req.Env)
}

// languageOfContext asks what the caller has left out: a context has one language.
func (s *Service) languageOfContext(ctx context.Context, e *registry.Entry, t target, id string) (sdk.Language, error) {
	contexts, ok := t.ready.(sdk.Contexts)
	if !ok {
		return "", lacksInterface()
	}
	var all []sdk.CodeContext
	err := s.asked(ctx, t, func(ctx context.Context) (err error) {
		all, err = contexts.ListContexts(ctx, e.Snapshot().Sandbox.ID)
		return err
	})
	if err != nil {
		return "", s.executionError(ctx, ctx, e, ExecuteRequest{}, err, false)
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
