// Package refusal makes the errors with which the guest's services refuse a call:
// gRPC statuses that carry a code of the SDK. The guest does not import the SDK,
// which would carry the whole plugin framework into every sandbox.
package refusal

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// The codes that the guest has a use for, as the SDK numbers them.
const (
	Internal       = "SB000"
	QuotaExceeded  = "SB008"
	Unavailable    = "SB009"
	InvalidRequest = "SB010"
	NotAllowed     = "SB012"
	NotFound       = "SB013"
	Conflict       = "SB014"
	NotSupported   = "SB015"
)

// maxText bounds the text of a refusal: it travels in HTTP/2 trailers.
const maxText = 2 << 10

// New makes a refusal. field names what is at fault in the request; it may be
// empty.
func New(code, field, format string, args ...any) error {
	text := validtext.Clip(fmt.Sprintf(format, args...), maxText)
	st, err := status.New(codes.Aborted, text).WithDetails(&providerv1.ErrorDetail{Code: code, Message: text, Field: field})
	if err != nil {
		return status.Error(codes.Internal, err.Error()) // not for a message of ours
	}
	return st.Err()
}
