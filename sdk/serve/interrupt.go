package serve

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *server) Interrupt(ctx context.Context, req *providerv1.InterruptRequest) (*providerv1.InterruptResponse, error) {
	p, err := capable[sdk.Interrupter](s, sdk.CapabilityInterrupt)
	if err != nil {
		return nil, err
	}
	return &providerv1.InterruptResponse{}, p.Interrupt(ctx, req.GetInstanceId(), req.GetExecutionId())
}
