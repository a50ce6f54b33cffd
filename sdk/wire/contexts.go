package wire

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// maxListed bounds contexts and commands of an instance.
const maxListed = 10_000

// CreateContext implements sdk.Contexts.
func (c *Client) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
	resp, err := c.contexts.CreateContext(ctx, &providerv1.CreateContextRequest{
		InstanceId: req.InstanceID, Language: string(req.Language), Cwd: req.Cwd, Env: req.Env,
	})
	if err != nil {
		return sdk.CodeContext{}, DecodeError(err)
	}
	return decodeContext(resp.GetContext())
}

// ListContexts implements sdk.Contexts.
func (c *Client) ListContexts(ctx context.Context, instanceID string) ([]sdk.CodeContext, error) {
	resp, err := c.contexts.ListContexts(ctx, &providerv1.ListContextsRequest{InstanceId: instanceID}, grpc.MaxCallRecvMsgSize(maxPart))
	if err != nil {
		return nil, DecodeError(err)
	}
	return decodeList(resp.GetContexts(), decodeContext)
}

// RestartContext implements sdk.Contexts.
func (c *Client) RestartContext(ctx context.Context, instanceID, contextID string) error {
	_, err := c.contexts.RestartContext(ctx, &providerv1.RestartContextRequest{InstanceId: instanceID, ContextId: contextID})
	return DecodeError(err)
}

// DeleteContext implements sdk.Contexts.
func (c *Client) DeleteContext(ctx context.Context, instanceID, contextID string) error {
	_, err := c.contexts.DeleteContext(ctx, &providerv1.DeleteContextRequest{InstanceId: instanceID, ContextId: contextID})
	return DecodeError(err)
}

func decodeContext(wc *providerv1.Context) (sdk.CodeContext, error) {
	if !instanceID().MatchString(wc.GetId()) {
		return sdk.CodeContext{}, misbehaved("gave a context an ID that is not acceptable")
	}
	if !wordName().MatchString(wc.GetLanguage()) || len(wc.GetCwd()) > maxText {
		return sdk.CodeContext{}, misbehaved("described a context unacceptably")
	}
	return sdk.CodeContext{
		ID: wc.GetId(), Language: sdk.Language(wc.GetLanguage()), Cwd: wc.GetCwd(), CreatedAt: decodeTime(wc.GetCreatedAt()), Busy: wc.GetBusy(),
	}, nil
}

// decodeList converts a list of bounded length.
func decodeList[W, T any](list []W, convert func(W) (T, error)) ([]T, error) {
	if len(list) > maxListed {
		return nil, misbehaved("listed more than is acceptable")
	}
	converted := make([]T, 0, len(list))
	for _, w := range list {
		t, err := convert(w)
		if err != nil {
			return nil, err
		}
		converted = append(converted, t)
	}
	return converted, nil
}

// EncodeContext encodes a context.
func EncodeContext(c sdk.CodeContext) *providerv1.Context {
	return &providerv1.Context{Id: c.ID, Language: string(c.Language), Cwd: c.Cwd, CreatedAt: timestamppb.New(c.CreatedAt), Busy: c.Busy}
}
