package e2b

import (
	"errors"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// refusalBody is the form of every refusal but those of the Connect protocol. The SDKs
// decide by the code in it, which is the status once more, of what they make of 404 and
// 409.
type refusalBody struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code"`
	RequestID string `json:"request_id"`
	SandboxID string `json:"sandboxId,omitempty"`
	Port      int    `json:"port,omitempty"`
}

// illFormed refuses a body of a request for the code interpreter, which alone has 422.
type illFormed struct{ error }

func (i *illFormed) Unwrap() error { return i.error }

// problem puts a refusal into E2B's form. Its clients know 400 where the broker's own API
// has 422.
func problem(err error, requestID string) rest.Problem {
	r := rest.RefusalOf(err, requestID)
	if _, own := errors.AsType[*illFormed](err); r.Status == http.StatusUnprocessableEntity && !own {
		r.Status = http.StatusBadRequest
	}
	// The SDKs show the text and no other code than the status.
	body := refusalBody{Message: r.Detail + " (" + string(r.Code) + ")", ErrorCode: string(r.Code), RequestID: requestID}
	if at, ok := errors.AsType[*sandboxGone](err); ok {
		r.Status = http.StatusBadGateway
		body.SandboxID, body.Port = at.sandbox, at.port
	}
	if at, ok := errors.AsType[*trafficRefused](err); ok {
		body.SandboxID = at.sandbox
	}
	body.Code = r.Status
	return r.As("application/json", body)
}

// sandboxGone refuses what is asked of a sandbox that does not run, or of a port where
// nothing listens: 502, by which the SDKs know it.
type sandboxGone struct {
	error
	sandbox string
	port    int // 0 unless the sandbox runs
}

func (s *sandboxGone) Unwrap() error { return s.error }

// paused refuses what is asked of a sandbox that is.
func paused(id string) error {
	return &sandboxGone{error: sdk.Errorf(sdk.CodeConflict, "The sandbox is paused. Connect to it to resume it."), sandbox: id}
}

// trafficRefused refuses what is asked of a port by who may not.
type trafficRefused struct {
	error
	sandbox string
}

func (t *trafficRefused) Unwrap() error { return t.error }

// errSandboxGone is for who names none that runs.
var errSandboxGone error = &sandboxGone{error: sdk.Errorf(sdk.CodeNotFound, "The sandbox was not found. It may have ended.")}

// refused is a refusal of a field that would change what the client gets.
func refused(field, format string, args ...any) error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, format, args...)
}

// never is the refusal of what no provider has.
func never(what string) error {
	return sdk.Errorf(sdk.CodeNotSupported, "This server has no %s.", what)
}
