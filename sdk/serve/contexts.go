package serve

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *server) CreateContext(ctx context.Context, req *providerv1.CreateContextRequest) (*providerv1.CreateContextResponse, error) {
	p, err := capable[sdk.Contexts](s, sdk.CapabilityContexts)
	if err != nil {
		return nil, err
	}
	c, err := p.CreateContext(ctx, sdk.CreateContextRequest{
		InstanceID: req.GetInstanceId(), Language: sdk.Language(req.GetLanguage()), Cwd: req.GetCwd(), Env: req.GetEnv(),
	})
	if err != nil {
		return nil, err
	}
	return &providerv1.CreateContextResponse{Context: wire.EncodeContext(c)}, nil
}

func (s *server) ListContexts(ctx context.Context, req *providerv1.ListContextsRequest) (*providerv1.ListContextsResponse, error) {
	p, err := capable[sdk.Contexts](s, sdk.CapabilityContexts)
	if err != nil {
		return nil, err
	}
	list, err := p.ListContexts(ctx, req.GetInstanceId())
	if err != nil {
		return nil, err
	}
	resp := &providerv1.ListContextsResponse{}
	for _, c := range list {
		resp.Contexts = append(resp.Contexts, wire.EncodeContext(c))
	}
	return resp, nil
}

func (s *server) RestartContext(ctx context.Context, req *providerv1.RestartContextRequest) (*providerv1.RestartContextResponse, error) {
	p, err := capable[sdk.Contexts](s, sdk.CapabilityContexts)
	if err != nil {
		return nil, err
	}
	return &providerv1.RestartContextResponse{}, p.RestartContext(ctx, req.GetInstanceId(), req.GetContextId())
}

func (s *server) DeleteContext(ctx context.Context, req *providerv1.DeleteContextRequest) (*providerv1.DeleteContextResponse, error) {
	p, err := capable[sdk.Contexts](s, sdk.CapabilityContexts)
	if err != nil {
		return nil, err
	}
	return &providerv1.DeleteContextResponse{}, p.DeleteContext(ctx, req.GetInstanceId(), req.GetContextId())
}
