package instance

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Observer is told what becomes of the work, for metrics. Its methods return at once.
type Observer interface {
	// Executed is called when an execution that was begun has ended: with one of
	// sdk.Statuses and its code, or with StatusError and the code of the error. The
	// language is empty for code that runs in a context without naming one.
	Executed(provider string, language sdk.Language, status sdk.Status, code sdk.Code)
	// Created is called when a provider has answered a creation, or has not in time.
	Created(provider string, outcome CreateOutcome, code sdk.Code)
	// FailedOver is called for each provider that could not serve a request which got
	// a new instance of another, with the code of the reason.
	FailedOver(from, to string, code sdk.Code)
}

// StatusError is the status, for an Observer, of an execution that came to an error
// instead of a result.
const StatusError sdk.Status = "error"

// CreateOutcome is how a provider has answered a creation.
type CreateOutcome string

// The outcomes.
const (
	CreateMade    CreateOutcome = "made"
	CreateRefused CreateOutcome = "refused" // certainly nothing was made
	CreateUnclear CreateOutcome = "unclear" // something may have been
)

type noObserver struct{}

func (noObserver) Executed(string, sdk.Language, sdk.Status, sdk.Code) {}
func (noObserver) Created(string, CreateOutcome, sdk.Code)             {}
func (noObserver) FailedOver(string, string, sdk.Code)                 {}

// observeExecution tells how an execution has ended. Who left has cancelled it.
func (s *Service) observeExecution(e *registry.Entry, t target, execution Execution, err error) {
	status, code := execution.Result.Status, execution.Result.Status.Code()
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		status, code = sdk.StatusCancelled, ""
	case err != nil:
		status, code = StatusError, sdk.CodeOf(err)
	}
	s.observer.Executed(e.Label(), t.Language, status, code)
}

// observeCreation tells how a creation was answered. ctx is that of the call.
func (m *creation) observeCreation(ctx context.Context, err error) {
	outcome, code := CreateRefused, sdk.CodeOf(err)
	switch {
	case err == nil:
		outcome = CreateMade
	case m.outcome == registry.Uncertain:
		outcome = CreateUnclear
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), err != nil && brokenOff(err) && ctx.Err() == nil:
		code = sdk.CodeCreateFailed // as its caller is told
	case ctx.Err() != nil:
		code = "" // nobody waits for it any more
	}
	if err == nil {
		code = ""
	}
	m.observer.Created(m.target.provider.Label(), outcome, code)
}

// observeFailOver tells which providers could not serve before this one did.
func (c *creations) observeFailOver(i registry.Instance) {
	for _, t := range i.Routing.Tried {
		c.observer.FailedOver(t.Provider, i.Label, t.Code)
	}
}
