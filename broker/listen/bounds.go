package listen

import (
	"math"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// maxScrapers is how many connections to the metrics there may be. All are strangers'.
const maxScrapers = 32

// Bounds are what the configuration says, or less where the process may
// not have as many descriptors.
func Bounds(c config.Connections) admission.Bounds {
	return admission.Bounds{
		Connections: int(c.Total), Strangers: int(c.WithoutToken), StrangersPerAddress: int(c.WithoutTokenPerAddress),
		PerOwner: int(c.PerTenant), Shared: c.SharedAddresses,
	}.Within(descriptors())
}

// ScraperBounds are those of the metrics. What they take is part of what is left of
// the descriptors beside the API's connections.
func ScraperBounds() admission.Bounds {
	most := int(min(maxScrapers, max(4, descriptors()/16)))
	return admission.Bounds{Connections: most, Strangers: most, StrangersPerAddress: most}
}

// maxPeerConnections is how many connections of other brokers there may be: as many as the
// calls that they pass on at a time.
const maxPeerConnections = 4096

// PeerBounds are those of other brokers. One that has shown no certificate yet is a stranger.
// As those of the metrics, they are part of what is left of the descriptors.
func PeerBounds() admission.Bounds {
	most := int(min(maxPeerConnections, max(16, descriptors()/16)))
	strangers := max(8, most/4)
	return admission.Bounds{Connections: most, Strangers: strangers, StrangersPerAddress: strangers}
}

// descriptors is how many the process may have.
func descriptors() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return limit.Cur
}

// Report logs what had to be done so that there is room for others.
func Report(logger hclog.Logger) func(admission.Event) {
	return func(e admission.Event) {
		fields := []any{
			"without_token", e.Strangers, "with_token", e.Known, "max", e.Bounds.Connections, "max_without_token", e.Bounds.Strangers,
		}
		if n := e.Displaced + e.Refused; n > 0 {
			logger.Warn("too many connections without a token: the oldest are closed for new ones",
				append(fields, "closed", e.Displaced, "refused", e.Refused, "last_from", e.Address.String())...)
		}
		if e.Idle > 0 {
			logger.Warn("too many connections: idle ones are closed for new ones", append(fields, "closed", e.Idle)...)
		}
		if e.Overdrawn > 0 {
			logger.Warn("a tenant has as many connections as it may: further ones are refused",
				append(fields, "tenant", e.Owner, "refused", e.Overdrawn, "max_per_tenant", e.Bounds.PerOwner)...)
		}
		if e.Errors > 0 {
			logger.Error("connections could not be accepted; it is tried again", append(fields, "errors", e.Errors, "error", e.Err)...)
		}
	}
}
