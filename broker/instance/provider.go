package instance

import (
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
)

// The names under which the users of a Service know what its parts declare.
type (
	Provider    = routing.Provider
	Status      = routing.Status
	Catalog     = routing.Catalog
	Offer       = routing.Offer
	Patience    = routing.Patience
	Routing     = routing.Placement
	Tried       = routing.Tried
	ID          = registry.ID
	Record      = registry.Record
	Ended       = registry.Tombstone
	ListRequest = registry.ListRequest
)
