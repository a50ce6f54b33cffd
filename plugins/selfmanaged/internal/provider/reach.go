package provider

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestcalls"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
)

var (
	_ guestcalls.Instances = (*instances)(nil)
	_ guestcalls.Instance  = (*instance)(nil)
	_ guestcalls.Instance  = reached{}
)

// Reach implements guestcalls.Instances.
func (all *instances) Reach(_ context.Context, instanceID string) (guestcalls.Instance, func(), error) {
	i, err := all.find(instanceID)
	if err != nil {
		return nil, nil, err
	}
	release, err := i.use()
	if err != nil {
		return nil, nil, err
	}
	return reached{i, i.sandbox()}, release, nil
}

// reached is an instance in the sandbox that it had when somebody reached it.
type reached struct {
	*instance
	in *sandbox
}

// Guest implements guestcalls.Instance.
func (r reached) Guest() *guestclient.Client { return r.in.guest }

// Lost implements guestcalls.Instance. A sandbox that its instance has left is no loss.
func (r reached) Lost(ctx context.Context) error {
	if r.in.left.Load() {
		return errLeft
	}
	return r.instance.Lost(ctx)
}

// Guest implements guestcalls.Instance.
func (i *instance) Guest() *guestclient.Client { return i.sandbox().guest }
