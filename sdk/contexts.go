package sdk

import (
	"context"
	"time"
)

// Contexts is implemented by providers whose instances have interpreters that
// keep their state: variables, imports and open files stay from one execution
// to the next. ExecuteRequest.ContextID runs code in one.
//
// In a context the value of the last expression is an artifact of kind
// ArtifactResult; code that is a declaration and nothing else has none. Executions of one context run one after the other; those of
// others do not wait for them, and a crash of one touches no other. Stopping an
// execution (its time limit, its context's end) interrupts the code first
// and keeps the state where it can; where it cannot, the context starts afresh
// and ExecuteResult.Detail says so. Code that ends its interpreter is StatusFailed soon
// after, not at its time limit, with such a Detail; out of memory is StatusOutOfMemory.
// A context that starts afresh is as RestartContext leaves it.
//
// In a context main is called with Arguments and never without: a piece of code
// that only defines it is an ordinary one there.
//
// All methods return CodeNotFound for an unknown instance or context, as does
// Execute; about a context it sets Field to "context_id". One that is deleted while
// code runs in it ends that with StatusCancelled or CodeUnavailable. An execution that has
// waited for its turn longer than MaxContextWait is refused with
// CodeQuotaExceeded.
type Contexts interface {
	// CreateContext starts an interpreter and returns when it can run code.
	CreateContext(ctx context.Context, req CreateContextRequest) (CodeContext, error)
	// ListContexts returns those of an instance, whether code runs in them or not.
	ListContexts(ctx context.Context, instanceID string) ([]CodeContext, error)
	// RestartContext ends what runs in the context and forgets its state. ID,
	// language, directory and environment stay.
	RestartContext(ctx context.Context, instanceID, contextID string) error
	// DeleteContext ends it. To delete one that does not exist is a success.
	DeleteContext(ctx context.Context, instanceID, contextID string) error
}

// MaxContextWait is the longest that an execution waits for those before it in its
// context.
const MaxContextWait = time.Minute

// CreateContextRequest asks for a context.
type CreateContextRequest struct {
	InstanceID string
	Language   Language
	// Cwd is a directory inside the instance; empty for /workspace.
	Cwd string
	// Env is added to the instance's environment.
	Env map[string]string
}

// CodeContext is a stateful interpreter.
type CodeContext struct {
	// ID is the provider's own name for it, unique in its instance.
	ID        string
	Language  Language
	Cwd       string
	CreatedAt time.Time
	// Busy says whether code runs in it.
	Busy bool
}
