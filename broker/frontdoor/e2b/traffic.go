package e2b

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

// leastAwake is how long a sandbox that traffic has resumed lives at least.
const leastAwake = 300 * time.Second

// awake resumes a sandbox that is paused, if its creator wants traffic to, and refuses what
// is asked of any other one that is. Requests at the same time share one resume, which goes
// on when they leave.
func (d *Door) awake(ctx context.Context, who tenant.Tenant, info instance.Info) (instance.Info, error) {
	id := info.ID.String()
	switch {
	case !info.Paused:
		return info, nil
	case !noteOf(info).AutoResume:
		return info, paused(info.ID.Instance)
	}
	resumed := d.resumes.DoChan(id, func() (any, error) {
		now, err := d.instances.Resume(context.WithoutCancel(ctx), who, id)
		if err == nil {
			now, err = d.instances.Renew(ctx, who, id, max(now.TTL, leastAwake))
		}
		return now, err
	})
	select {
	case <-ctx.Done():
		return info, ctx.Err()
	case r := <-resumed:
		now, _ := r.Val.(instance.Info)
		return now, r.Err
	}
}
