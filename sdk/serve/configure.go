package serve

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *server) Configure(ctx context.Context, req *providerv1.ConfigureRequest) (*providerv1.ConfigureResponse, error) {
	stripEnvironment()
	settings, problems := s.validated(ctx, req.GetSettings())
	if err := sdk.InvalidSettings(problems); err != nil {
		return nil, err
	}
	err := s.provider.Configure(ctx, sdk.ConfigureRequest{
		Label:    req.GetLabel(),
		BrokerID: req.GetBrokerId(),
		StateDir: req.GetStateDir(),
		Settings: settings,

		AbandonedDirs: req.GetAbandonedDirs(), KeepDir: req.GetKeepDir(),
	})
	if err != nil {
		return nil, err
	}
	s.configured.Store(true)
	return &providerv1.ConfigureResponse{}, nil
}

func (s *server) Validate(ctx context.Context, req *providerv1.ValidateRequest) (*providerv1.ValidateResponse, error) {
	_, problems := s.validated(ctx, req.GetSettings())
	resp := &providerv1.ValidateResponse{}
	for _, problem := range problems[:min(len(problems), sdk.MaxProblems)] {
		resp.Problems = append(resp.Problems, wire.EncodeProblem(problem))
	}
	return resp, nil
}

// validated are the settings of a request, and all that is wrong with them.
func (s *server) validated(ctx context.Context, given *structpb.Struct) (sdk.Settings, []sdk.FieldError) {
	settings, problems := s.describe().Schema.Resolve(given.AsMap())
	if validator, ok := s.provider.(sdk.SettingsValidator); ok && len(problems) == 0 {
		problems = validator.Validate(ctx, settings)
	}
	return settings, problems
}
