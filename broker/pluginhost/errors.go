package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// LaunchError says why a plugin did not start. It wraps an *sdk.Error with
// CodeNotInitialized, which is what callers may see; Detail and Stderr are for
// the operator's log alone, since they hold paths and the plugin's own words.
type LaunchError struct {
	Public *sdk.Error
	Detail string
	// Stderr is the end of what the plugin wrote there.
	Stderr string
}

// Error returns the code, the message and the detail, without Stderr.
func (e *LaunchError) Error() string {
	if e.Detail == "" {
		return e.Public.Error()
	}
	return e.Public.Error() + " (" + e.Detail + ")"
}

// Unwrap returns the *sdk.Error.
func (e *LaunchError) Unwrap() error { return e.Public }

func notStarted(message string, detail ...string) *LaunchError {
	return &LaunchError{
		Public: sdk.Errorf(sdk.CodeNotInitialized, "%s", message),
		Detail: strings.Join(detail, ": "),
	}
}

// named returns err with a message that begins with the provider's label, unless
// it speaks of the request: then it reads as the broker's own refusals do. An
// error without a code gets CodeInternal, as everywhere; a context's end keeps its
// identity for errors.Is.
func named(label string, err error) error {
	if err == nil {
		return nil
	}
	prefix := labelPrefix(label)
	if e, ok := errors.AsType[*LaunchError](err); ok {
		copied := *e
		public := *e.Public
		public.Message = prefix + trimLabel(label, public.Message)
		copied.Public = &public
		return &copied
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		if strings.HasPrefix(e.Message, prefix) || speaksOfRequest(e.Code) {
			return err
		}
		copied := *e
		copied.Message = prefix + e.Message
		return &copied
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s%w", prefix, err)
	}
	return sdk.Errorf(sdk.CodeInternal, "%s%w", prefix, err)
}

// speaksOfRequest reports whether an error with this code tells what is wrong with
// a request, or with what it names. Where it does not, as from Create, it is
// translated on its way to the caller.
func speaksOfRequest(code sdk.Code) bool {
	switch code {
	case sdk.CodeInvalidRequest, sdk.CodeNotAllowed, sdk.CodeNotFound, sdk.CodeConflict, sdk.CodeNotSupported:
		return true
	default:
		return false
	}
}

func labelPrefix(label string) string { return fmt.Sprintf("provider %q: ", label) }

// trimLabel is for where the label is said anyway.
func trimLabel(label, message string) string {
	return strings.TrimPrefix(message, labelPrefix(label))
}

// reasonOf is what callers may read about an error.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
