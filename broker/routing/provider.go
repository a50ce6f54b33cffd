package routing

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Provider is a configured provider as its users need it. The plugin host's
// supervised plugins are such. After an upgrade there are two of one label for a
// while: the one in the catalog, which gets what is new, and the one before, which
// keeps its instances. Values are compared with ==.
type Provider interface {
	// Label names the provider in the configuration and in the API.
	Label() string
	// Plugin is the name of the plugin behind it.
	Plugin() string
	// Description is what the provider says about itself; the zero value as
	// long as it never said anything.
	Description() sdk.Description
	// Provider waits until the provider is ready, at most until ctx ends.
	// Errors are SB001 while it was never configured and SB009 when it is
	// down.
	Provider(ctx context.Context) (sdk.Provider, error)
	// Status says how it is, without waiting.
	Status() Status
}

// Status is how a provider is doing.
type Status struct {
	// State is one word, such as ready, starting or unavailable.
	State string
	// Ready says whether it takes work.
	Ready bool
	// Reason says why not.
	Reason string
	// Details are facts for people, from the provider's health probe.
	Details map[string]string
}

// Catalog says which providers there are at this moment. It may be another one at
// the next.
type Catalog interface {
	// Providers in the order of the configuration.
	Providers() []Provider
	// Offer is what there is for a tenant. A request that was authenticated a
	// moment ago may have seen a tenant of other providers than there are by now.
	Offer(who tenant.Tenant) Offer
}

// Offer is what a catalog has at one moment. Its parts go together.
type Offer struct {
	// Providers in the order of the configuration, those that the tenant may not
	// use included.
	Providers []Provider
	// Active is the label of the provider that is used unless a request names one.
	Active string
	// Fallback are the labels of those that are asked when it cannot serve. The
	// Policy says in which order these and the active one are asked.
	Fallback []string
	Policy   Policy
	// Costs of a second of an instance's life, by label.
	Costs map[string]float64
	// Patience with a provider where others could be asked.
	Patience Patience
	// Templates of the operator that the tenant may use; nil for none.
	Templates Templates
	// Tenant as it is now, or as it was last if it is one no more.
	Tenant tenant.Tenant
	// Removed says that who asks is a tenant no more, be it that another one has the
	// name by now.
	Removed bool
}

// Patience is how long requests bear with a provider before the next is asked.
type Patience struct {
	// Start is how long after the start of the broker they wait for one that is not
	// ready yet.
	Start time.Duration
	// Full is how long they wait for room at one that is full.
	Full time.Duration
	// Unclear is how long they wait until it is known whether a creation has made an
	// instance.
	Unclear time.Duration
}

// Usable are the providers that the tenant may use.
func (o Offer) Usable() []Provider {
	var usable []Provider
	for _, p := range o.Providers {
		if o.Tenant.Allows(p.Label()) {
			usable = append(usable, p)
		}
	}
	return usable
}

// Candidates are the providers that may be asked when the request names none: the
// active one and its fallback, as far as the tenant may use them. A tenant that may
// not use the active one has the first that it may use in its place.
func (o Offer) Candidates(usable []Provider) []Provider {
	first := Labelled(usable, o.Active)
	if first == nil {
		first = usable[0]
	}
	list := []Provider{first}
	for _, label := range o.Fallback {
		if p := Labelled(usable, label); p != nil && p != first {
			list = append(list, p)
		}
	}
	return list
}

// Labelled returns the provider with that label, nil if there is none.
func Labelled(providers []Provider, label string) Provider {
	for _, p := range providers {
		if p.Label() == label {
			return p
		}
	}
	return nil
}

// MaxTried bounds what an answer says of providers that could not serve.
const MaxTried = 16

// Placement says why a provider serves.
type Placement struct {
	// Reason is one of the reasons of this package.
	Reason string `json:"reason,omitempty"`
	// PlacedBy is the reason for which the instance was made there, where Reason is
	// that the session lives there.
	PlacedBy string `json:"placed_by,omitempty"`
	// Tried are the providers that could not serve, in order: when the instance was
	// made, where it is not from now.
	Tried []Tried `json:"tried,omitempty"`
}

// Onto is the placement of a use of an instance that was placed before.
func (p Placement) Onto(placed Placement) Placement {
	if p.Reason == ReasonSession {
		p.PlacedBy = placed.Reason
		both := slices.Concat(placed.Tried, p.Tried)
		p.Tried = both[:min(len(both), 2*MaxTried)]
	}
	return p
}

// Tried is a provider that could not serve a request, and the code of the reason.
type Tried struct {
	Provider string   `json:"provider"`
	Code     sdk.Code `json:"code"`
}
