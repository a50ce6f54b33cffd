package sdk

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *server) CreateContext(ctx context.Context, req *providerv1.CreateContextRequest) (*providerv1.CreateContextResponse, error) {
	p, err := capable[Contexts](s, CapabilityContexts)
	if err != nil {
		return nil, err
	}
	c, err := p.CreateContext(ctx, CreateContextRequest{
		InstanceID: req.GetInstanceId(), Language: Language(req.GetLanguage()), Cwd: req.GetCwd(), Env: req.GetEnv(),
	})
	if err != nil {
		return nil, err
	}
	return &providerv1.CreateContextResponse{Context: contextToWire(c)}, nil
}

func (s *server) ListContexts(ctx context.Context, req *providerv1.ListContextsRequest) (*providerv1.ListContextsResponse, error) {
	p, err := capable[Contexts](s, CapabilityContexts)
	if err != nil {
		return nil, err
	}
	list, err := p.ListContexts(ctx, req.GetInstanceId())
	if err != nil {
		return nil, err
	}
	resp := &providerv1.ListContextsResponse{}
	for _, c := range list {
		resp.Contexts = append(resp.Contexts, contextToWire(c))
	}
	return resp, nil
}

func (s *server) RestartContext(ctx context.Context, req *providerv1.RestartContextRequest) (*providerv1.RestartContextResponse, error) {
	p, err := capable[Contexts](s, CapabilityContexts)
	if err != nil {
		return nil, err
	}
	return &providerv1.RestartContextResponse{}, p.RestartContext(ctx, req.GetInstanceId(), req.GetContextId())
}

func (s *server) DeleteContext(ctx context.Context, req *providerv1.DeleteContextRequest) (*providerv1.DeleteContextResponse, error) {
	p, err := capable[Contexts](s, CapabilityContexts)
	if err != nil {
		return nil, err
	}
	return &providerv1.DeleteContextResponse{}, p.DeleteContext(ctx, req.GetInstanceId(), req.GetContextId())
}

func contextToWire(c CodeContext) *providerv1.Context {
	return &providerv1.Context{Id: c.ID, Language: string(c.Language), Cwd: c.Cwd, CreatedAt: timestamppb.New(c.CreatedAt), Busy: c.Busy}
}
