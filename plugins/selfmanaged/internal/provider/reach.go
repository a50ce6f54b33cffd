package provider

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestcalls"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
)

var (
	_ guestcalls.Instances = (*instances)(nil)
	_ guestcalls.Instance  = (*instance)(nil)
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
	return i, release, nil
}

// Guest implements guestcalls.Instance.
func (i *instance) Guest() *guestclient.Client { return i.sandbox.guest }
