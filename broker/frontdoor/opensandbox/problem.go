package opensandbox

import (
	"errors"
	"net/http"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// flatError is the form of every refusal. The clients read its first two fields.
type flatError struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	RequestID string `json:"request_id"`
	// ErrorCode is the broker's own code where Code is a word of OpenSandbox's.
	ErrorCode string `json:"error_code,omitempty"`
}

// problem puts a refusal into OpenSandbox's form. Its clients know 400 where the broker's
// own API has 422.
func problem(err error, requestID string) rest.Problem {
	r := rest.RefusalOf(err, requestID)
	if r.Status == http.StatusUnprocessableEntity {
		r.Status = http.StatusBadRequest
	}
	answer := flatError{Code: string(r.Code), Message: r.Detail, RequestID: requestID}
	if own, ok := errors.AsType[*inOwnWords](err); ok {
		answer.Code, answer.ErrorCode = own.code, answer.Code
	}
	if _, ok := errors.AsType[*unstored](err); ok {
		r.Headers["Cache-Control"] = "no-store"
	}
	return r.As("application/json", answer)
}

// inOwnWords is a refusal whose code clients know by OpenSandbox's own name for it, since
// they do something about it.
type inOwnWords struct {
	error
	code string
}

func (o *inOwnWords) Unwrap() error { return o.error }

// spoken gives a refusal such a code.
func spoken(code string, err error) error { return &inOwnWords{err, code} }

// refused is a refusal of a field that would change what the client gets.
func refused(field, format string, args ...any) error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, format, args...)
}

// sentAs has the client's names for fields of the requests that are made of its own.
var sentAs = map[string]string{"ttl": "timeout", "labels": "metadata", "note": "entrypoint", "template": "image.uri", "snapshot": "snapshotId"}

// asSent gives a refusal of a field the name by which the client has sent that.
func asSent(err error) error {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return err
	}
	field, rest, nested := strings.Cut(e.Field, ".")
	name, known := sentAs[field]
	if !known {
		return err
	}
	if nested {
		name += "." + rest
	}
	own := *e
	own.Field = name
	return &own
}

// unavailable is the refusal of what no provider has, in words that OpenSandbox's own
// servers use.
func unavailable(what string) error {
	return sdk.Errorf(sdk.CodeNotSupported, "NOT_SUPPORTED: %s", what)
}
