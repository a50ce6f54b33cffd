package wire

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// Validate says what is wrong with settings, as far as they tell it by themselves:
// nothing of a plugin that does not look.
func (c *Client) Validate(ctx context.Context, settings sdk.Settings) ([]sdk.FieldError, error) {
	sent, err := EncodeSettings(settings)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeInternal, "encode settings: %w", err)
	}
	resp, err := c.rpc.Validate(ctx, &providerv1.ValidateRequest{Settings: sent})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, nil
	case err != nil:
		return nil, DecodeError(err)
	case len(resp.GetProblems()) > sdk.MaxProblems:
		return nil, misbehaved("finds more than a hundred problems in its settings")
	}
	var problems []sdk.FieldError
	for _, p := range resp.GetProblems() {
		if len(p.GetField()) > maxText || len(p.GetMessage()) > maxText {
			return nil, misbehaved("says too much about a problem of its settings")
		}
		problems = append(problems, sdk.FieldError{Field: p.GetField(), Message: p.GetMessage()})
	}
	return problems, nil
}

// EncodeProblem encodes what is wrong with a setting, with texts no longer than may cross
// the wire.
func EncodeProblem(p sdk.FieldError) *providerv1.Problem {
	return &providerv1.Problem{Field: cutText(p.Field, maxWireMessage), Message: cutText(p.Message, maxWireMessage)}
}
