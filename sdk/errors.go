package sdk

import (
	"errors"
	"fmt"
	"time"
)

// Code is a broker error code, the same in Go, on the wire and in REST.
type Code string

// The error codes, and what a provider says with each. CodeTable has what callers of the
// broker are told; what they get in place of some of these is FromProvider's.
const (
	// CodeInternal is a bug. It is the code of every error that has none, so an author
	// hardly writes it.
	CodeInternal Code = "SB000"
	// CodeNotInitialized means that the provider has no configuration yet. The broker asks
	// nothing of one but its description before Configure has succeeded.
	CodeNotInitialized Code = "SB001"
	// CodeInvalidConfig is for Configure: a setting is wrong, which Field should name.
	CodeInvalidConfig Code = "SB002"
	// CodeConnectionFailed means that the provider's service was not reached, or has
	// broken off. After a Create it leaves open whether there is an instance.
	CodeConnectionFailed Code = "SB003"
	// CodeCreateFailed means that an instance could not be made for a reason that has no
	// code of its own. It leaves open whether there is one, unless NoEffect is set.
	CodeCreateFailed Code = "SB004"
	// CodeExecutionTimeout, CodeOutOfMemory and CodeBlocked tell what became of code, and
	// are no failures of the call. A provider that knows returns them as the Status of the
	// result, with the output so far; as an error of Execute they are understood too.
	CodeExecutionTimeout Code = "SB005"
	CodeOutOfMemory      Code = "SB006"
	CodeBlocked          Code = "SB007"
	// CodeQuotaExceeded means that there is no room now: the service limits requests or
	// sandboxes, or this machine is full. With RetryAfter the broker waits so long, where
	// its caller does. After a Create it says that nothing was made.
	CodeQuotaExceeded Code = "SB008"
	// CodeUnavailable means that it does not work at the moment and may later. From
	// Execute it says that the code may have run.
	CodeUnavailable Code = "SB009"
	// CodeInvalidRequest means that the caller has to change the request; Field names what
	// is wrong with it, by its name in the API.
	CodeInvalidRequest Code = "SB010"
	// CodeNotAuthenticated and CodeNotAllowed mean that the service refuses the provider's
	// own credentials, or what they may do. The operator has to see to it, so callers get
	// CodeUnavailable.
	CodeNotAuthenticated Code = "SB011"
	CodeNotAllowed       Code = "SB012"
	// CodeNotFound means that what was named is not there: the instance, or with a Field
	// what that names, such as a context or a path. See ExecutionError for what it says of
	// code.
	CodeNotFound Code = "SB013"
	// CodeConflict means that something else stands in the way, such as an execution in
	// the same context. Asked again later the same call may succeed.
	CodeConflict Code = "SB014"
	// CodeNotSupported means that the provider cannot do it, now or later. NotSupported
	// makes such an error.
	CodeNotSupported Code = "SB015"
)

// CodeInfo describes a code. Docs, OpenAPI and metrics come from it.
type CodeInfo struct {
	Code Code
	// Title is the meaning in a few words.
	Title string
	// HTTPStatus of a refusal with this code. 200 marks the codes that tell
	// what became of an execution that was taken on.
	HTTPStatus int
	// Retryable says whether the same request may succeed later.
	Retryable bool
	// Advice says what the caller should do.
	Advice string
}

// CodeTable returns every code in order.
func CodeTable() []CodeInfo {
	return []CodeInfo{
		{CodeInternal, "internal error", 500, false, "A bug: report it with the request ID."},
		{CodeNotInitialized, "provider not initialized", 503, true, "Retry; if it lasts, the operator finds the reason in the provider's state."},
		{CodeInvalidConfig, "invalid configuration", 400, false, "Correct the named setting."},
		{CodeConnectionFailed, "connection to the provider's service failed", 502, true, "Retry; check the endpoint and the network."},
		{CodeCreateFailed, "instance creation failed", 503, true, "Retry; the detail says what stood in the way."},
		{CodeExecutionTimeout, "execution timeout", 200, false, "The output so far is in the result. Give more time or do less."},
		{CodeOutOfMemory, "out of memory", 200, false, "The output so far is in the result. Use less memory or ask for more."},
		{CodeBlocked, "code blocked by security policy", 200, false, "The detail names the line and the rule."},
		{CodeQuotaExceeded, "rate limit or quota exceeded", 429, true, "Wait for Retry-After."},
		{CodeUnavailable, "provider unavailable", 503, true, "Retry; whether an execution that was running had effects is unknown."},
		{CodeInvalidRequest, "invalid request", 400, false, "Correct the named field."},
		{CodeNotAuthenticated, "not authenticated", 401, false, "Send Authorization: Bearer with a valid token."},
		{CodeNotAllowed, "not allowed", 403, false, "This token may not do that."},
		{CodeNotFound, "no such instance, execution, context or file", 404, false, "It never existed, has ended, or is not yours."},
		{CodeConflict, "conflict", 409, false, "Somebody else changed it, or the key was used for something else."},
		{CodeNotSupported, "not supported by this provider", 501, false, "Use a provider that lists the capability."},
	}
}

// Info returns the table's line for a code; an unknown code gives that of
// SB000.
func (c Code) Info() CodeInfo {
	table := CodeTable()
	for _, info := range table {
		if info.Code == c {
			return info
		}
	}
	return table[0]
}

// Known reports whether c is in the table.
func (c Code) Known() bool { return c.Info().Code == c }

// FromProvider returns the code that a caller of the broker gets when a provider
// fails a call for an instance with c. It is c, except for codes that would tell
// the caller something untrue about its own request: SB002, SB011, SB012 and
// SB014 from a provider speak of the provider's account at its back end (the
// back end refuses its credentials, say), and SB013 of something that the caller
// never named. All of these become SB009, and only the broker's log has the
// provider's words. Two calls have a use for SB013, and the broker looks for it
// first: from Execute it means that the instance is gone, and with NoEffect that
// it was gone before any code was started; from Destroy that there is nothing
// left to do.
func (c Code) FromProvider() Code {
	switch c {
	case CodeInvalidConfig, CodeNotAuthenticated, CodeNotAllowed, CodeConflict, CodeNotFound:
		return CodeUnavailable
	default:
		return c
	}
}

// LeavesOpen reports whether there may be an instance after a Create that failed with
// c, unless the error says NoEffect. The others are refusals, which say that there is
// none; codes that make no sense for a creation tell nothing. It means nothing for other
// calls.
func (c Code) LeavesOpen() bool {
	switch c {
	case CodeNotInitialized, CodeInvalidConfig, CodeQuotaExceeded, CodeInvalidRequest,
		CodeNotAuthenticated, CodeNotAllowed, CodeNotSupported:
		return false
	default:
		return true
	}
}

// Error is a failure with a code. It crosses the wire between plugin and
// broker unchanged, except for the wrapped cause, which stays where it was.
type Error struct {
	Code Code
	// Message is for the caller: no secrets, no paths of the host.
	Message string
	// Field names the request field or setting at fault, if one is.
	Field string
	// Capability that is lacking, for CodeNotSupported.
	Capability Capability
	// RetryAfter is how long to wait before the same call may succeed; 0 where that is
	// not known. Package retry reads it from answers of HTTP services.
	RetryAfter time.Duration
	// NoEffect says that the call has certainly changed nothing. After a Create that
	// failed it lets the broker ask another provider at once, whatever the code; after
	// an Execute with CodeNotFound it lets it run the code in a new instance.
	NoEffect bool
	cause    error
}

// Errorf makes an Error. As with fmt.Errorf, %w wraps a cause, whose text becomes a part
// of the message that callers read: wrap no errors that hold secrets or paths of the host.
// The cause itself is for errors.Is and errors.As in the same process.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
}

// FieldErrorf makes an Error that names the field at fault. The field is as its owner
// writes it: a setting in the configuration for CodeInvalidConfig, a field of the request
// in the API else, such as context_id.
func FieldErrorf(code Code, field, format string, args ...any) *Error {
	e := Errorf(code, format, args...)
	e.Field = field
	return e
}

// Error returns the code and the message.
func (e *Error) Error() string {
	if e.Field != "" {
		return fmt.Sprintf("%s: %s: %s", e.Code, e.Field, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap returns the cause, if one was given with %w.
func (e *Error) Unwrap() error { return e.cause }

// Is makes errors.Is(err, &Error{Code: c}) true for every Error with that
// code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == ""
}

// CodeOf returns the code of the first Error in err's chain, "" for nil and
// CodeInternal for an error that has none.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// ExecutionError returns the error that Execute returns where the back end said err.
// begun says that some of the code may have run. The broker runs code again only where
// none of it has:
//
//	err                                  begun  Execute returns
//	CodeNotFound without a Field         no     CodeNotFound with NoEffect: the code may run in a new instance
//	CodeNotFound without a Field         yes    CodeUnavailable: the instance ended under the code
//	CodeNotFound with a Field (context)  no     err: a context has no other one to run in
//	CodeNotFound with a Field (context)  yes    CodeUnavailable: the context was deleted under the code
//	any other                            -      err
func ExecutionError(err error, begun bool) error {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok || e.Code != CodeNotFound:
		return err
	case begun && e.Field != "":
		return Errorf(CodeUnavailable, "the context was deleted while the code ran")
	case begun:
		return Errorf(CodeUnavailable, "the instance ended while the code ran, or was about to")
	case e.Field != "":
		return err
	}
	gone := *e
	gone.NoEffect = true
	return &gone
}
