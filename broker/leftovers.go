package broker

import (
	"context"
	"time"
)

// forgetTenantsTimeout bounds the removal of what tenants have left in the state file.
const forgetTenantsTimeout = 10 * time.Second

// forgetAnswers removes the kept answers of tenants that are not known. It is called when
// a tenant is removed, and once more before one of its name is let in: a request of the
// earlier one may have been on its way.
func (b *broker) forgetAnswers(known func(tenant string) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), forgetTenantsTimeout)
	defer cancel()
	if err := b.answers.Forget(ctx, known); err != nil {
		b.logger.Error("the answers that were kept for a removed tenant could not be removed", "error", err)
	}
}
