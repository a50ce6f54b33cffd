package provider

import (
	"context"
	"time"
)

// KeepAlive keeps those alive that would be stopped before long, as they are at some time.
func (p *Provider) KeepAlive(ctx context.Context, now time.Time) int {
	due := p.due(now)
	for _, sb := range due {
		sb.keepAlive(ctx)
	}
	return len(due)
}
