package serve

import (
	"context"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *server) BuildTemplate(req *providerv1.BuildTemplateRequest, stream grpc.ServerStreamingServer[providerv1.BuildTemplateResponse]) error {
	p, err := capable[sdk.TemplateBuilder](s, sdk.CapabilityTemplates)
	if err != nil {
		return err
	}
	sources := 0
	for _, source := range []string{req.GetFrom(), req.GetRootfs(), req.GetDockerfile()} {
		if source != "" {
			sources++
		}
	}
	if sources != 1 {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "a template is made of an image, of a root file system or of a Dockerfile: give one of from, rootfs and dockerfile")
	}
	built, err := p.BuildTemplate(stream.Context(), sdk.BuildTemplateRequest{
		Name: req.GetName(), From: req.GetFrom(), Rootfs: req.GetRootfs(), Source: req.GetSource(), Packages: req.GetPackages(), Env: req.GetEnv(),
		Start: req.GetStart(), Ready: req.GetReady(), MemoryMB: req.GetMemoryMb(), CPUs: req.GetCpus(),
		Dockerfile: req.GetDockerfile(), Context: req.GetContext(), BuildArgs: req.GetBuildArgs(), Network: wire.DecodeNetwork(req.GetNetwork()),
	}, func(progress sdk.TemplateProgress) error {
		return stream.Send(&providerv1.BuildTemplateResponse{Event: &providerv1.BuildTemplateResponse_Progress{Progress: wire.EncodeStep(progress)}})
	})
	if err != nil {
		return err
	}
	return stream.Send(&providerv1.BuildTemplateResponse{Event: &providerv1.BuildTemplateResponse_Built{Built: wire.EncodeTemplate(built)}})
}

func (s *server) ListTemplates(ctx context.Context, _ *providerv1.ListTemplatesRequest) (*providerv1.ListTemplatesResponse, error) {
	p, err := capable[sdk.TemplateBuilder](s, sdk.CapabilityTemplates)
	if err != nil {
		return nil, err
	}
	built, err := p.ListTemplates(ctx)
	if err != nil {
		return nil, err
	}
	resp := &providerv1.ListTemplatesResponse{}
	for _, t := range built {
		resp.Templates = append(resp.Templates, wire.EncodeTemplate(t))
	}
	return resp, nil
}

func (s *server) RemoveTemplate(ctx context.Context, req *providerv1.RemoveTemplateRequest) (*providerv1.RemoveTemplateResponse, error) {
	p, err := capable[sdk.TemplateBuilder](s, sdk.CapabilityTemplates)
	if err != nil {
		return nil, err
	}
	return &providerv1.RemoveTemplateResponse{}, p.RemoveTemplate(ctx, req.GetImage())
}
