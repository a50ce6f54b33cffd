package generation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// followAgain is how long it takes until a process whose news could not be followed is followed
// again.
const followAgain = time.Second

// followNetwork writes what the instances of a process do with their networks into the audit
// log, until that has ended or the broker stops.
func (h *Host) followNetwork(r *Revision, p sdk.Provider) {
	if !slices.Contains(p.Describe().Capabilities, sdk.CapabilityNetwork) {
		return
	}
	governor, ok := p.(sdk.NetworkGovernor)
	if !ok {
		return
	}
	h.Tasks.Go("follow the networks of "+r.Label(), func() {
		for {
			err := governor.FollowNetwork(h.Life, func(sdk.NetworkReport) error { return nil })
			if h.Life.Err() != nil || errors.Is(err, wire.ErrPluginGone) || errors.Is(err, context.Canceled) {
				return
			}
			h.Logger.Warn("what instances do with their networks cannot be told at the moment, and the audit log lacks it", "provider", r.Label(), "error", err)
			select {
			case <-time.After(followAgain):
			case <-h.Life.Done():
				return
			}
		}
	})
}
