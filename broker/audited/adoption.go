package audited

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
)

// Adopt records that an instance of another broker becomes this one's.
func (p *provider) Adopt(ctx context.Context, instanceID, brokerID string) error {
	return p.recorder.record(ctx, p.recorder.effect(ctx, OpAdopt, instanceID), func(*audit.Outcome) error {
		return p.client.Adopt(ctx, instanceID, brokerID)
	})
}
