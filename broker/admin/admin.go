// Package admin answers what administrators ask of a running broker: who they are,
// by their tokens, and how the providers are.
//
// It knows nothing of HTTP, which is broker/api's, and starts and stops nothing:
// what there is to tell it gets from whoever makes the Service. Changing the
// configuration and trying it out belong here too.
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Provider is all that is known of a provider. It holds no settings, and what its
// plugin says in it is free of their secrets.
type Provider struct {
	// Label names it in the configuration.
	Label string
	// Active is the one that serves requests naming none.
	Active     bool
	Executable pluginhost.Executable
	// Description is empty for a plugin that never came to describe itself.
	Description sdk.Description
	State       pluginhost.State
	// Draining counts earlier processes that serve their last instances.
	Draining int
	// Removed says that it is not in the configuration any more: there are only those.
	Removed bool
	// Standing is how its creations have gone of late.
	Standing routing.Standing
}

// Broker is what the service asks; both may change while the broker runs.
type Broker interface {
	// AdminTokens are the sums of the administrators' tokens. Without any there
	// are no administrators.
	AdminTokens() [][sha256.Size]byte
	// AdminProviders are in the order of the configuration.
	AdminProviders() []Provider
}

// Service is for administrators. Its methods may be called concurrently.
type Service struct {
	broker Broker
	finder Finder
}

// NewService returns a service that needs no end. Without a finder, which is nil then,
// there are no providers but those that are configured.
func NewService(broker Broker, finder Finder) *Service { return &Service{broker, finder} }

// Enabled reports whether there are administrators.
func (s *Service) Enabled() bool { return len(s.broker.AdminTokens()) > 0 }

// Authenticate reports whether this is the token of an administrator. Every sum is
// compared, in constant time.
func (s *Service) Authenticate(token string) bool {
	sum := sha256.Sum256([]byte(token))
	found := 0
	for _, known := range s.broker.AdminTokens() {
		found |= subtle.ConstantTimeCompare(sum[:], known[:])
	}
	return found == 1 && token != ""
}

// Providers returns how all providers are.
func (s *Service) Providers() []Provider { return s.broker.AdminProviders() }

// Provider returns how one is, or could be. The error is SB013.
func (s *Service) Provider(ctx context.Context, label string) (Provider, error) {
	for _, p := range s.broker.AdminProviders() {
		if p.Label == label {
			return p, nil
		}
	}
	all, err := s.Available(ctx)
	if err != nil {
		return Provider{}, err
	}
	for _, p := range all {
		if p.Label == label {
			return p, nil
		}
	}
	return Provider{}, sdk.Errorf(sdk.CodeNotFound, "there is no such provider in the configuration, and no such plugin beside it")
}
